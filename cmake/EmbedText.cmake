# SPDX-License-Identifier: Apache-2.0
# cmake -DOUTPUT=file.cpp -DFILES=a.cu|b.cu -P EmbedText.cmake: the files' texts as one table of C++
# strings, ren::cuda::kEmbeddedTexts, by file name.
string(REPLACE "|" ";" FILES "${FILES}")
set(rows "")
set(count 0)
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  string(APPEND rows "  {\"${name}\", R\"kernel(${text})kernel\"},\n")
  math(EXPR count "${count} + 1")
endforeach()
file(WRITE ${OUTPUT} "// Written by cmake/EmbedText.cmake.
#include <cstddef>

namespace ren::cuda {
struct EmbeddedText {
  const char* name;
  const char* text;
};
extern const EmbeddedText kEmbeddedTexts[] = {
${rows}};
extern const size_t kEmbeddedTextCount = ${count};
}  // namespace ren::cuda
")
