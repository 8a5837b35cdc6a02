// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/device/cuda/kernel_source.h"

namespace ren::cuda {

// Where compiled kernels and measured choices are kept between runs: $RENAISSANCE_CACHE,
// $XDG_CACHE_HOME/renaissance or ~/.cache/renaissance; empty when there is no home either.
std::string cache_folder();

// 32 hexadecimal digits of a text, for names of cached files.
std::string text_hash(std::string_view text);

// The cached content of folder/KIND/KEY, or empty; damaged files count as missing.
std::string read_cached(const std::string& folder, std::string_view kind, const std::string& key);
// Never throws: a cache that can't be written costs time later, nothing else.
void write_cached(const std::string& folder, std::string_view kind, const std::string& key,
                  std::string_view content) noexcept;

// Source to machine code for "sm_90" and the like; throws internal with the compiler's log.
std::string compile_cubin(const std::string& source, const std::string& name,
                          const std::string& architecture);

// Machine code on its way: compiling in the background, loaded when first asked for.
class CompiledModule {
 public:
  explicit CompiledModule(std::shared_future<std::string> cubin) : cubin_(std::move(cubin)) {}
  ~CompiledModule();
  const std::string& cubin() const { return cubin_.get(); }  // waits for the compiler
  // The kernel of that name; waits for the compiler. Throws internal or device.
  cudaKernel_t kernel(const std::string& entry);

 private:
  std::shared_future<std::string> cubin_;
  cudaLibrary_t library_ = nullptr;
  std::map<std::string, cudaKernel_t> kernels_;
};

// All kernels of one device, each source compiled once, by a few threads, kept on disk.
class KernelCache {
 public:
  KernelCache(std::string architecture, std::string folder);  // no folder: nothing is kept
  ~KernelCache();
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  std::shared_ptr<CompiledModule> request(const KernelSource& source);
  size_t compile_all();  // waits for all requests; throws the first error; how many

 private:
  void work();

  const std::string architecture_, folder_;
  std::map<std::string, std::shared_ptr<CompiledModule>> modules_;  // by source text
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::packaged_task<std::string()>> queue_;
  std::vector<std::thread> threads_;
  bool stop_ = false;
};

}  // namespace ren::cuda
