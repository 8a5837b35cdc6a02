// SPDX-License-Identifier: Apache-2.0
#include "engine/device/cuda/kernel_cache.h"

#include <fmt/format.h>
#include <nvrtc.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "engine/base/file.h"
#include "engine/device/cuda/check.h"

namespace ren::cuda {
namespace {

uint64_t fnv1a(std::string_view text, uint64_t hash) {
  for (const char c : text) hash = (hash ^ uint8_t(c)) * 0x100000001b3ull;
  return hash;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string checksum_line(std::string_view content) {
  return fmt::format("renaissance-cache 1 {} {}\n", content.size(), text_hash(content));
}

struct NvrtcProgram {
  nvrtcProgram program = nullptr;
  ~NvrtcProgram() {
    if (program) nvrtcDestroyProgram(&program);
  }
};

void check_nvrtc(nvrtcResult status, const char* call) {
  if (status != NVRTC_SUCCESS) fail(StatusCode::device, "{}: {}", call, nvrtcGetErrorString(status));
}

std::string numbered(const std::string& source) {
  std::string result;
  int line = 1;
  for (size_t begin = 0; begin < source.size(); ++line) {
    const size_t end = std::min(source.find('\n', begin), source.size());
    result += fmt::format("{:4} {}\n", line, source.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

}  // namespace

std::string cache_folder() {
  if (const std::string own = environment("RENAISSANCE_CACHE"); !own.empty()) return own;
  if (const std::string xdg = environment("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/renaissance";
  if (const std::string home = environment("HOME"); !home.empty()) return home + "/.cache/renaissance";
  return {};
}

std::string text_hash(std::string_view text) {
  return fmt::format("{:016x}{:016x}", fnv1a(text, 0xcbf29ce484222325ull),
                     fnv1a(text, 0x9e3779b97f4a7c15ull));
}

std::string read_cached(const std::string& folder, std::string_view kind, const std::string& key) try {
  if (folder.empty()) return {};
  std::string file = read_file(fmt::format("{}/{}/{}", folder, kind, key));
  const size_t line = file.find('\n');
  if (line == std::string::npos) return {};
  std::string content = file.substr(line + 1);
  return checksum_line(content) == std::string_view(file).substr(0, line + 1) ? content : std::string();
} catch (const Error&) {
  return {};
}

void write_cached(const std::string& folder, std::string_view kind, const std::string& key,
                  std::string_view content) noexcept try {
  if (folder.empty()) return;
  const std::string parent = fmt::format("{}/{}", folder, kind);
  std::error_code ignored;
  std::filesystem::create_directories(parent, ignored);
  write_file(parent + "/" + key, checksum_line(content) + std::string(content));
} catch (...) {
}

std::string compile_cubin(const std::string& source, const std::string& name,
                          const std::string& architecture) {
  NvrtcProgram p;
  check_nvrtc(nvrtcCreateProgram(&p.program, source.c_str(), name.c_str(), 0, nullptr, nullptr),
              "nvrtcCreateProgram");
  const std::string target = "--gpu-architecture=" + architecture;
  const char* options[] = {target.c_str(), "--std=c++17", "--generate-line-info"};
  const nvrtcResult status = nvrtcCompileProgram(p.program, 3, options);
  if (status != NVRTC_SUCCESS) {
    size_t bytes = 0;
    nvrtcGetProgramLogSize(p.program, &bytes);
    std::string log(bytes, '\0');
    nvrtcGetProgramLog(p.program, log.data());
    fail(StatusCode::internal, "{} does not compile for {}: {}\n{}\n{}", name, architecture,
         nvrtcGetErrorString(status), log, numbered(source));
  }
  size_t bytes = 0;
  check_nvrtc(nvrtcGetCUBINSize(p.program, &bytes), "nvrtcGetCUBINSize");
  std::string cubin(bytes, '\0');
  check_nvrtc(nvrtcGetCUBIN(p.program, cubin.data()), "nvrtcGetCUBIN");
  return cubin;
}

CompiledModule::~CompiledModule() {
  if (library_) cudaLibraryUnload(library_);
}

cudaKernel_t CompiledModule::kernel(const std::string& entry) {
  cudaKernel_t& kernel = kernels_[entry];
  if (kernel) return kernel;
  if (!library_) {
    REN_CUDA_CHECK(cudaLibraryLoadData(&library_, cubin().data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  }
  REN_CUDA_CHECK(cudaLibraryGetKernel(&kernel, library_, entry.c_str()));
  return kernel;
}

KernelCache::KernelCache(std::string architecture, std::string folder)
    : architecture_(std::move(architecture)), folder_(std::move(folder)) {
  const int count = std::clamp(int(std::thread::hardware_concurrency()), 1, 16);
  for (int i = 0; i < count; ++i) threads_.emplace_back([this] { work(); });
}

KernelCache::~KernelCache() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    queue_.clear();  // what waits on a compilation now gets broken_promise
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void KernelCache::work() {
  for (;;) {
    std::packaged_task<std::string()> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (stop_) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
  }
}

size_t KernelCache::compile_all() {
  for (const auto& [source, module] : modules_) module->cubin();
  return modules_.size();
}

std::shared_ptr<CompiledModule> KernelCache::request(const KernelSource& kernel) {
  std::string source = kernel.text();
  std::shared_ptr<CompiledModule>& module = modules_[source];
  if (module) return module;
  std::packaged_task<std::string()> task([this, source, name = kernel.file()] {
    int major = 0, minor = 0;
    nvrtcVersion(&major, &minor);
    const std::string key =
        text_hash(fmt::format("{} nvrtc {}.{}\n{}", architecture_, major, minor, source)) + ".cubin";
    std::string cubin = read_cached(folder_, "kernels", key);
    if (cubin.empty()) {
      cubin = compile_cubin(source, name, architecture_);
      write_cached(folder_, "kernels", key, cubin);
    }
    return cubin;
  });
  module = std::make_shared<CompiledModule>(task.get_future().share());
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(task));
  }
  wake_.notify_one();
  return module;
}

}  // namespace ren::cuda
