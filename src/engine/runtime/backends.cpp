// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/backends.h"

#include <dlfcn.h>

#include <filesystem>

#include "engine/ops/cuda_module.h"

namespace ren {
namespace {

namespace fs = std::filesystem;

// Beside this library, or in the lib folder next to a program's bin folder.
std::string find_module() {
  const fs::path folder = module_folder();
  for (const fs::path& place : {folder / kCudaModuleFile, folder / ".." / "lib" / kCudaModuleFile}) {
    std::error_code ignored;
    if (fs::exists(place, ignored)) return place.lexically_normal().string();
  }
  fail(StatusCode::not_found,
       "this installation has no CUDA module: there is no {} in {}; `scripts/build.sh cuda` makes build/cuda, which has one",
       kCudaModuleFile, folder.string());
}

const Backend& load_cuda() {
  const std::string file = find_module();
  // Never closed: its devices and kernels may outlive any handle of ours.
  void* module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) fail(StatusCode::device, "the CUDA module cannot be loaded: {}", dlerror());
  const auto entry = reinterpret_cast<CudaModuleEntry>(dlsym(module, kCudaModuleEntry));
  if (entry == nullptr) fail(StatusCode::device, "{} is no CUDA module: {}", file, dlerror());
  const Backend* backend = entry(module_abi());
  if (backend == nullptr)
    fail(StatusCode::device, "{} belongs to another build of this library: install both anew", file);
  return *backend;
}

}  // namespace

std::string module_folder() {
  Dl_info info{};
  std::error_code ignored;
  fs::path file;
  if (dladdr(reinterpret_cast<const void*>(&module_folder), &info) != 0 && info.dli_fname)
    file = info.dli_fname;
  // For a program the name is what it was called by, which need not be a path.
  if (!file.is_absolute()) file = fs::read_symlink("/proc/self/exe", ignored);
  return fs::weakly_canonical(file, ignored).parent_path().string();
}

const Backend& find_backend(DeviceKind kind) {
  if (kind == DeviceKind::cpu) return cpu_backend();
  static const Backend& cuda = load_cuda();  // a failure is tried again when asked again
  return cuda;
}

BackendReport report_backend(DeviceKind kind, int index) try {
  return {true, find_backend(kind).open(index)->name()};
} catch (const Error& e) {
  return {false, e.what()};
}

}  // namespace ren
