# SPDX-License-Identifier: Apache-2.0
# Tests that are not C++ programs: of the source tree, the header, the installed tree,
# the scripts and the Python helper. A test that lacks something returns 77: skipped.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
find_program(BASH bash REQUIRED)

# ren_check(NAME LABELS labels... [TIMEOUT seconds] COMMAND ...)
function(ren_check name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LABELS;COMMAND" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${ARG_COMMAND})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()

ren_check(architecture LABELS unit COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/architecture_test.py)
ren_check(scripts LABELS unit COMMAND ${BASH} ${CMAKE_CURRENT_SOURCE_DIR}/scripts_test.sh)

set(header ${CMAKE_SOURCE_DIR}/include/renaissance_c.h)
if(EXISTS ${header})
  set(strict -pedantic-errors -Wall -Wextra -Werror -fsyntax-only)
  ren_check(header.c99 LABELS unit COMMAND ${CMAKE_C_COMPILER} -x c -std=c99 -Wstrict-prototypes ${strict} ${header})
  foreach(standard 11 20)
    ren_check(header.cxx${standard} LABELS unit
              COMMAND ${CMAKE_CXX_COMPILER} -x c++ -std=c++${standard} ${strict} ${header})
  endforeach()
endif()

# A C program of strict C99 against the shared library.
if(TARGET renaissance)
  add_executable(header_c99 ${CMAKE_CURRENT_SOURCE_DIR}/capi/header_c99.c)
  set_target_properties(header_c99 PROPERTIES C_STANDARD 99 C_EXTENSIONS OFF)
  target_compile_options(header_c99 PRIVATE -pedantic-errors -Wall -Wextra -Werror -Wstrict-prototypes)
  target_include_directories(header_c99 PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/capi)
  target_link_libraries(header_c99 PRIVATE renaissance)
  ren_check(header.program LABELS cpu COMMAND header_c99 ${CMAKE_SOURCE_DIR}/examples/quickstart/shapes_cnn.onnx)
endif()
if(TARGET renaissance_cli)
  foreach(part usage models train places resume data)
    ren_check(cli.${part} LABELS cpu TIMEOUT 600
              COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/cli/${part}_test.py $<TARGET_FILE:renaissance_cli>)
  endforeach()
  ren_check(parity LABELS slow TIMEOUT 1200
            COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/cli/parity_test.py $<TARGET_FILE:renaissance_cli>)
endif()

# Not twice: the rest is about what a release build delivers.
if(NOT REN_SANITIZE)
  if(TARGET renaissance)
    ren_check(install LABELS slow TIMEOUT 300
              COMMAND ${BASH} ${CMAKE_CURRENT_SOURCE_DIR}/install/install_test.sh ${CMAKE_BINARY_DIR})
    add_executable(example_train ${CMAKE_SOURCE_DIR}/examples/c/train.c)
    target_link_libraries(example_train PRIVATE renaissance)
    set_target_properties(example_train PROPERTIES BUILD_RPATH "$ORIGIN/../lib")
    foreach(language c python)
      ren_check(example.${language} LABELS slow TIMEOUT 300
                COMMAND ${BASH} ${CMAKE_CURRENT_SOURCE_DIR}/examples_test.sh ${CMAKE_BINARY_DIR} ${language})
    endforeach()
  endif()
  ren_check(quickstart.data LABELS slow
            COMMAND ${BASH} ${CMAKE_CURRENT_SOURCE_DIR}/quickstart/data_test.sh)
  ren_check(quickstart.linear LABELS slow TIMEOUT 300
            COMMAND ${BASH} ${CMAKE_CURRENT_SOURCE_DIR}/quickstart/linear_test.sh ${CMAKE_BINARY_DIR})
  ren_check(python LABELS slow TIMEOUT 900
            COMMAND ${BASH} ${CMAKE_SOURCE_DIR}/bindings/python/tests/run.sh)
endif()
