// SPDX-License-Identifier: Apache-2.0
// Images a second from a data set to batches, as JSON.
//
//   bench_data_loader URI [--size N] [--batch N] [--threads N] [--epochs N] [--cache MIB]
//                         [--split train|val] [--mode train|eval] [--decode exact|fast]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string_view>

#include "data/dataset.h"
#include "engine/base/status.h"
#include "engine/base/threads.h"

namespace {

using Clock = std::chrono::steady_clock;

// Of all threads of the process; other work on the machine hardly changes it.
double cpu_seconds() { return double(std::clock()) / CLOCKS_PER_SEC; }

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Arguments {
  std::string uri, split = "train", mode = "train", decode = "exact";
  int64_t size = 224, batch = 128, epochs = 3, cache_mib = 512;
  int threads = 0;
};

Arguments parse(int count, char** values) {
  Arguments a;
  if (count < 2)
    ren::fail(ren::StatusCode::invalid_argument, "usage: bench_data_loader URI [--size N] [--batch N] ...");
  a.uri = values[1];
  for (int i = 2; i + 1 < count; i += 2) {
    const std::string_view name = values[i];
    const char* const value = values[i + 1];
    if (name == "--size")
      a.size = std::atoll(value);
    else if (name == "--batch")
      a.batch = std::atoll(value);
    else if (name == "--threads")
      a.threads = std::atoi(value);
    else if (name == "--epochs")
      a.epochs = std::atoll(value);
    else if (name == "--cache")
      a.cache_mib = std::atoll(value);
    else if (name == "--split")
      a.split = value;
    else if (name == "--mode")
      a.mode = value;
    else if (name == "--decode" && (value == std::string_view("exact") || value == std::string_view("fast")))
      a.decode = value;
    else
      ren::fail(ren::StatusCode::invalid_argument, "unknown option '{} {}'", name, value);
  }
  return a;
}

nlohmann::json measure(const Arguments& a) {
  using namespace ren::data;
  const auto begin = Clock::now();
  const Dataset set = open_dataset(a.uri);
  const double open_seconds = seconds_since(begin), open_cpu_seconds = cpu_seconds();
  const Split* const split = a.split == "train" ? &set.train() : set.validation();
  if (split == nullptr) ren::fail(ren::StatusCode::not_found, "'{}' has no validation pictures", a.uri);

  LoaderOptions options;
  options.batch = a.batch;
  options.height = options.width = a.size;
  options.threads = a.threads;
  options.cache_bytes = a.cache_mib << 20;
  if (a.decode == "fast") options.decoding = Decoding::fast;
  if (a.mode == "train") {
    options.augmentation = Augmentation::train(int(a.size), int(a.size));
    options.shuffle = true;
  }
  const auto loader = make_loader(*split, options);
  nlohmann::json rates = nlohmann::json::array(), cpu_rates = rates, first_batch = nlohmann::json::array();
  for (int64_t epoch = 0; epoch < a.epochs; ++epoch) {
    const auto start = Clock::now();
    const double cpu_start = cpu_seconds();
    loader->start_epoch(epoch, 0);
    ren::BatchView view;
    int64_t images = 0;
    while (loader->next(view)) {
      if (images == 0) first_batch.push_back(seconds_since(start));
      images += view.count;
    }
    rates.push_back(double(images) / seconds_since(start));
    cpu_rates.push_back(double(images) / (cpu_seconds() - cpu_start));
  }
  const LoaderStatistics s = loader->statistics();
  return {{"benchmark", "data_loader"},
          {"uri", a.uri},
          {"images", split->size()},
          {"open_seconds", open_seconds},
          {"open_cpu_seconds", open_cpu_seconds},
          {"size", a.size},
          {"batch", a.batch},
          {"mode", a.mode},
          {"decode", a.decode},
          {"augmentation", options.augmentation.text()},
          {"threads", a.threads > 0 ? a.threads : ren::hardware_threads()},
          {"cache_mib", a.cache_mib},
          {"cached_images", loader->report().cached_images},
          {"images_per_second", rates},
          {"images_per_cpu_second", cpu_rates},
          {"first_batch_seconds", first_batch},
          {"loader",
           {{"pictures", s.pictures},
            {"pictures_read", s.pictures_read},
            {"bytes_read", s.bytes_read},
            {"read_seconds", s.read_seconds},
            {"decode_seconds", s.decode_seconds},
            {"transform_seconds", s.transform_seconds},
            {"cpu_seconds", s.cpu_seconds},
            {"wait_seconds", s.wait_seconds}}}};
}

}  // namespace

int main(int count, char** values) {
  try {
    std::puts(measure(parse(count, values)).dump(1).c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_data_loader: %s\n", error.what());
    return 1;
  }
}
