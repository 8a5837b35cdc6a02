// SPDX-License-Identifier: Apache-2.0
#include "capi/trainer.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "capi/layout.h"
#include "capi/loader.h"

namespace ren::capi {
namespace {

// The first output that carries a loss; labels are one a position of it.
const GraphOutput& labelled_output(const TrainerState& state) {
  const Graph& graph = state.model->imported.graph;
  const auto& losses = state.trainer->options().spec.loss.outputs;
  for (const GraphOutput& o : graph.outputs)
    if (!losses.empty() && o.name == losses[0].output) return o;
  return graph.outputs.at(0);
}

void check_batch(const TrainerState& state, const ren_batch& b, int64_t most, bool labels) {
  const importer::InputInfo& input = state.model->imported.input;
  const TrainerOptions& options = state.trainer->options();
  const DType type = b.image_type == REN_IMAGE_FLOAT32 ? DType::f32 : DType::u8;
  Problems problems;
  if (b.image_type != REN_IMAGE_UINT8 && b.image_type != REN_IMAGE_FLOAT32)
    problems.add("image_type", fmt::format("is {}", b.image_type));
  else if (type != options.spec.input.image_type)
    problems.add("image_type", fmt::format("is {}, the trainer was made for {}", name_of(type),
                                           name_of(options.spec.input.image_type)));
  if (b.layout != REN_LAYOUT_NCHW && b.layout != REN_LAYOUT_NHWC)
    problems.add("layout", fmt::format("is {}", b.layout));
  if (b.channels != input.channels || b.height != input.height || b.width != input.width)
    problems.add("images",
                 fmt::format("are of {}x{}x{}, the model takes {}x{}x{} (channels, height, width)",
                             b.channels, b.height, b.width, input.channels, input.height, input.width));
  if (b.count < 1 || b.count > most)
    problems.add("count", fmt::format("is {}; 1 to {} fit here", b.count, most));
  if (b.images == nullptr) problems.add("images", "is NULL");
  if (labels) {
    const Shape s = state.model->imported.graph.at(labelled_output(state).value).shape;
    const int64_t expected = b.count * s.h * s.w;
    if (b.labels == nullptr)
      problems.add("labels", "is NULL");
    else if (b.count >= 1 && b.count <= most && int64_t(b.label_count) != expected)
      problems.add("label_count",
                   fmt::format("is {}, {} pictures have {}", b.label_count, b.count, expected));
  }
  problems.throw_if_any(StatusCode::invalid_argument, "the batch does not fit the trainer");
}

// The images in the engine's layout, in memory of at least `batch` pictures.
const void* engine_images(TrainerState& state, const ren_batch& b, int64_t batch) {
  const bool planar = b.layout == REN_LAYOUT_NCHW && b.channels > 1 && b.height * b.width > 1;
  if (!planar && b.count == batch) return b.images;
  const size_t element = b.image_type == REN_IMAGE_FLOAT32 ? sizeof(float) : 1;
  const size_t picture = size_t(b.channels * b.height * b.width) * element;
  if (state.images.size() < picture * size_t(batch))
    state.images.assign(picture * size_t(batch), std::byte{0});
  if (planar) {
    nchw_to_nhwc(b.images, state.images.data(), b.count, b.channels, b.height * b.width, element);
  } else {
    std::memcpy(state.images.data(), b.images, picture * size_t(b.count));
  }
  return state.images.data();
}

int64_t largest_step(const TrainerOptions& o) {
  int64_t most = o.batch;
  for (const int64_t other : o.other_batches) most = std::max(most, other);
  return most;
}

ren_step_result result_of(const StepResult& r) {
  ren_step_result out{};
  out.skipped = r.skipped ? 1 : 0;
  out.loss = r.loss;
  out.samples = r.samples;
  out.correct = r.correct;
  out.correct5 = r.correct5;
  return out;
}

ren_metrics metrics_of(const Metrics& m) {
  ren_metrics out{};
  out.loss = m.loss;
  out.top1 = m.top1;
  out.top5 = m.top5;
  out.samples = m.samples;
  out.steps = m.steps;
  out.skipped = m.skipped;
  out.seconds = m.seconds;
  return out;
}

ren_progress progress_of(const FitProgress& p) {
  static_assert(int(FitPhase::training) == REN_PHASE_TRAINING &&
                int(FitPhase::evaluating) == REN_PHASE_EVALUATING &&
                int(FitPhase::epoch_done) == REN_PHASE_EPOCH_DONE &&
                int(FitPhase::checkpoint_written) == REN_PHASE_CHECKPOINT &&
                int(FitPhase::checkpoint_failed) == REN_PHASE_CHECKPOINT_FAILED);
  ren_progress out{};
  out.struct_size = sizeof(ren_progress);
  out.phase = int32_t(p.phase);
  out.epoch = p.epoch;
  out.epochs = p.epochs;
  out.step = p.step;
  out.steps = p.steps;
  out.learning_rate = p.learning_rate;
  out.images_per_second = p.images_per_second;
  out.seconds_left = p.seconds_left;
  out.loss_scale = p.loss_scale;
  out.training = metrics_of(p.training);
  out.validation = metrics_of(p.validation);
  out.failed_checkpoints = p.failed_checkpoints;
  return out;
}

FitObserver observer_of(ren_progress_fn fn, void* user) {
  if (fn == nullptr) return {};
  return [fn, user](const FitProgress& p) {
    ren_progress progress = progress_of(p);
    const std::string message = as_utf8(p.message);
    if (p.phase == FitPhase::checkpoint_failed) progress.message = message.c_str();
    return fn(user, &progress) == 0;
  };
}

// What a checkpoint must not replace.
std::vector<Place> needed_places(const TrainerState& trainer) {
  std::vector<Place> places = trainer.model->places(true);
  places.insert(places.end(), trainer.data.begin(), trainer.data.end());
  return places;
}

std::string mix_text(const MixSpec& mix) {
  return fmt::format("mixup_alpha {} and cutmix_alpha {}", mix.mixup, mix.cutmix);
}

// The trainer mixes, for any source. What a loader's augmentation asks for is not passed over.
void check_mix(const Trainer& trainer, const LoaderState& loader) {
  const MixSpec& own = trainer.options().spec.mix;
  if (loader.mix().any() && !(loader.mix() == own))
    fail(StatusCode::invalid_argument,
         "the training loader's augmentation asks for {}, the trainer was made with {}: give it the alphas "
         "that ren_loader_get_info tells",
         mix_text(loader.mix()), mix_text(own));
}

// The loader keeps the trainer, if it takes memory of its device.
BatchSource& source_for(const std::shared_ptr<TrainerState>& trainer,
                        const std::shared_ptr<LoaderState>& loader) {
  loader->set_owner(trainer);
  return *loader;
}

Region family_of(int32_t kind) {
  switch (kind) {
    case REN_TENSOR_PARAMETER:
      return Region::W;
    case REN_TENSOR_GRADIENT:
      return Region::G;
    case REN_TENSOR_MOMENTUM:
      return Region::M;
    case REN_TENSOR_EMA:
      return Region::E;
    case REN_TENSOR_STATISTIC:
      return Region::B;
    default:
      fail(StatusCode::invalid_argument, "kind is {}", kind);
  }
}

struct FoundTensor {
  Region family;
  int32_t index;
  const importer::Layout* layout;
};

FoundTensor find_tensor(const TrainerState& state, const std::string& name, int32_t kind) {
  const Region family = family_of(kind);
  const importer::ImportedModel& m = state.model->imported;
  const bool statistic = family == Region::B;
  const auto& layouts = statistic ? m.buffer_layouts : m.parameter_layouts;
  const int32_t index = find_layout(layouts, name);
  if (index < 0) no_such_tensor(*state.model, name, statistic ? "statistic" : "parameter");
  const Engine& engine = state.trainer->engine();
  if (engine.plan().region(family, engine.variants()[0].role).bytes == 0)
    fail(StatusCode::invalid_state, "this trainer keeps no {}", content_of(family));
  return {family, index, &layouts[size_t(index)]};
}

std::vector<std::vector<float>> all_parameters(const Trainer& trainer, Region family, size_t count) {
  std::vector<std::vector<float>> values;
  for (size_t i = 0; i < count; ++i) values.push_back(trainer.parameter(int32_t(i), family));
  return values;
}

}  // namespace
}  // namespace ren::capi

using namespace ren;
using namespace ren::capi;

extern "C" {

int32_t ren_trainer_create(const ren_model* model, const ren_trainer_options* given, ren_trainer** out) {
  return guard([&] {
    const auto& source = state_of(model, "model");
    const ren_trainer_options options = read_options(given, "ren_trainer_options");
    not_null(out, "trainer");
    auto state = std::make_shared<TrainerState>();
    state->model = source;
    TrainerOptions chosen = trainer_options(options, *source);
    state->normalization = normalization_text(options, size_t(source->imported.input.channels));
    ModelState values = state_for_trainer(*source);
    if (options.decay_weights_only != 0)
      for (Parameter& p : values.graph.parameters)
        if (p.kind != ParameterKind::weight) p.weight_decay_multiplier = 0.0f;
    state->trainer = std::make_unique<Trainer>(std::move(values), std::move(chosen));
    give_handle(out, std::move(state));
  });
}

void ren_trainer_destroy(ren_trainer* trainer) { destroy_handle(trainer); }

int32_t ren_trainer_device_name(const ren_trainer* trainer, char* buffer, size_t capacity, size_t* needed) {
  return guard([&] {
    const auto state = state_of(trainer, "trainer");
    give_text(state->trainer->engine().device().name(), buffer, capacity, needed);
  });
}

int32_t ren_trainer_step(ren_trainer* trainer, const ren_batch* given, double learning_rate,
                         ren_step_result* out) {
  return guard([&] {
    const auto state = state_of(trainer, "trainer");
    const ren_batch batch = read_options(not_null(given, "batch"), "batch");
    check_result(out, "result", true);
    const InUse use(state->use, "trainer");
    if (!std::isfinite(learning_rate) || learning_rate < 0)
      fail(StatusCode::invalid_argument, "the learning rate is {}", learning_rate);
    if (state->trainer->options().evaluation_only)
      fail(StatusCode::invalid_state, "this trainer was made for evaluation only");
    check_batch(*state, batch, largest_step(state->trainer->options()), true);
    const void* const images = engine_images(*state, batch, batch.count);
    give_result(out, result_of(state->trainer->step(images, batch.labels, batch.count, learning_rate)));
  });
}

int32_t ren_trainer_evaluate_batch(ren_trainer* trainer, const ren_batch* given, ren_step_result* out) {
  return guard([&] {
    const auto state = state_of(trainer, "trainer");
    const ren_batch batch = read_options(not_null(given, "batch"), "batch");
    check_result(out, "result");
    const InUse use(state->use, "trainer");
    const int64_t most = state->trainer->options().evaluation_batch;
    check_batch(*state, batch, most, true);
    const void* const images = engine_images(*state, batch, most);
    give_result(out, result_of(state->trainer->evaluate_batch(images, batch.labels, batch.count)));
  });
}

int32_t ren_trainer_predict(ren_trainer* trainer, const ren_batch* given, float* const* outputs,
                            const size_t* counts, size_t output_count) {
  return guard([&] {
    const auto state = state_of(trainer, "trainer");
    const ren_batch batch = read_options(not_null(given, "batch"), "batch");
    not_null(outputs, "outputs");
    not_null(counts, "counts");
    const InUse use(state->use, "trainer");
    const int64_t most = state->trainer->options().evaluation_batch;
    check_batch(*state, batch, most, false);
    const Graph& graph = state->model->imported.graph;
    if (output_count > graph.outputs.size())
      fail(StatusCode::invalid_argument, "output_count is {}, the model has {} outputs", output_count,
           graph.outputs.size());
    std::vector<Shape> shapes;
    for (size_t i = 0; i < output_count; ++i) {
      Shape s = graph.at(graph.outputs[i].value).shape;
      s.n = batch.count;
      shapes.push_back(s);
      if (outputs[i] != nullptr && int64_t(counts[i]) != s.elements())
        fail(StatusCode::invalid_argument, "counts[{}] is {}; output '{}' has {} values for {} pictures", i,
             counts[i], graph.outputs[i].name, s.elements(), batch.count);
    }
    const void* const images = engine_images(*state, batch, most);
    const auto values = state->trainer->predict(images, batch.count);
    for (size_t i = 0; i < output_count; ++i)
      if (outputs[i] != nullptr)
        nhwc_to_nchw(values[i].data(), outputs[i], shapes[i].n, shapes[i].h * shapes[i].w, shapes[i].c);
  });
}

int32_t ren_trainer_fit(ren_trainer* trainer, ren_loader* training, ren_loader* validation,
                        const ren_fit_options* given, ren_progress* result, ren_progress_fn fn, void* user) {
  return guard([&] {
    const auto state = state_of(trainer, "trainer");
    const auto train_loader = state_of(training, "training loader");
    const auto validation_loader =
        validation == nullptr ? nullptr : state_of(validation, "validation loader");
    const ren_fit_options options = read_options(given, "ren_fit_options");
    check_result(result, "result", true);
    if (options.checkpoint_every_steps < 0)
      fail(StatusCode::invalid_argument, "checkpoint_every_steps is {}", options.checkpoint_every_steps);
    if (train_loader == validation_loader)
      fail(StatusCode::invalid_argument, "training and validation share a loader");
    if (state->trainer->options().evaluation_only)
      fail(StatusCode::invalid_state, "this trainer was made for evaluation only");
    check_mix(*state->trainer, *train_loader);
    const std::string checkpoint = text_or(options.checkpoint, "", "checkpoint");
    const InUse use(state->use, "trainer"), training_use(train_loader->use, "training loader");
    std::optional<InUse> validation_use;
    if (validation_loader != nullptr) validation_use.emplace(validation_loader->use, "validation loader");
    state->data.clear();
    for (const auto& loader : {train_loader, validation_loader})
      if (loader != nullptr && !loader->place().empty())
        state->data.push_back({loader->place(), "the data set"});
    const std::vector<std::string>& classes = train_loader->description().classes;
    state->classes = classes.empty() ? std::string() : json_text(classes);
    if (!checkpoint.empty()) refuse_places(checkpoint, "the checkpoint", needed_places(*state));
    FitOptions fit;
    fit.training = &source_for(state, train_loader);
    if (validation_loader != nullptr) fit.validation = &source_for(state, validation_loader);
    fit.checkpoint_path = checkpoint;
    fit.checkpoint_every_steps = options.checkpoint_every_steps;
    fit.observer = observer_of(fn, user);
    give_result(result, progress_of(state->trainer->fit(fit)));
  });
}

int32_t ren_trainer_evaluate(ren_trainer* trainer, ren_loader* loader, ren_metrics* metrics,
                             ren_progress_fn fn, void* user) {
  return guard([&] {
    const auto state = state_of(trainer, "trainer");
    const auto source = state_of(loader, "loader");
    not_null(metrics, "metrics");
    const InUse use(state->use, "trainer"), loader_use(source->use, "loader");
    *metrics = metrics_of(state->trainer->evaluate(source_for(state, source), observer_of(fn, user)));
  });
}

// Runs in signal handlers: reads two words and sets a flag.
int32_t ren_trainer_request_stop(ren_trainer* trainer) {
  if (trainer == nullptr || !trainer->is_valid()) return REN_ERROR_INVALID_ARGUMENT;
  trainer->state->trainer->request_stop();
  return REN_OK;
}

int32_t ren_trainer_position(const ren_trainer* trainer, ren_position* out) {
  return guard([&] {
    const auto& state = state_of(trainer, "trainer");
    check_result(out, "position");
    std::optional<InUse> use;
    if (!state->use.is_mine()) use.emplace(state->use, "trainer");  // callbacks may ask
    ren_position position{};
    position.epoch = state->trainer->epoch();
    position.steps = state->trainer->steps_done();
    give_result(out, position);
  });
}

int32_t ren_trainer_tensor_get(ren_trainer* trainer, const char* name, int32_t kind, float* values,
                               size_t capacity, size_t* needed) {
  return guard([&] {
    const auto state = state_of(trainer, "trainer");
    const FoundTensor t = find_tensor(*state, text_of(name, "name"), kind);
    const InUse use(state->use, "trainer");
    const auto engine = t.family == Region::B ? state->trainer->buffer(t.index)
                                              : state->trainer->parameter(t.index, t.family);
    const auto file = to_file(*t.layout, engine);
    give_floats(file.data(), file.size(), values, capacity, needed);
  });
}

int32_t ren_trainer_tensor_set(ren_trainer* trainer, const char* name, int32_t kind, const float* values,
                               size_t count) {
  return guard([&] {
    const auto state = state_of(trainer, "trainer");
    const FoundTensor t = find_tensor(*state, text_of(name, "name"), kind);
    not_null(values, "values");
    if (t.family == Region::G) fail(StatusCode::invalid_argument, "gradients can only be read");
    int64_t expected = 1;
    for (const int64_t d : t.layout->onnx_shape) expected *= d;
    if (int64_t(count) != expected)
      fail(StatusCode::invalid_argument, "tensor '{}' takes {} values, not {}", name, expected, count);
    const InUse use(state->use, "trainer");
    const auto engine = from_file(*t.layout, {values, count});
    if (t.family == Region::B) {
      state->trainer->set_buffer(t.index, engine);
    } else if (t.family == Region::W) {
      state->trainer->set_parameter(t.index, engine);
    } else {
      state->trainer->engine().write_parameter(t.family, t.index, engine);
    }
  });
}

int32_t ren_trainer_checkpoint_save(ren_trainer* trainer, const char* path) {
  return guard([&] {
    const auto state = state_of(trainer, "trainer");
    const std::string file = text_of(path, "path");
    const InUse use(state->use, "trainer");
    refuse_places(file, "the checkpoint", needed_places(*state));
    state->trainer->save_checkpoint(file);
  });
}

int32_t ren_trainer_checkpoint_load(ren_trainer* trainer, const char* path) {
  return guard([&] {
    const auto state = state_of(trainer, "trainer");
    const std::string file = text_of(path, "path");
    const InUse use(state->use, "trainer");
    state->trainer->load_checkpoint(file);
  });
}

int32_t ren_trainer_resume(ren_trainer* trainer, ren_loader* training, const char* path) {
  return guard([&] {
    const auto state = state_of(trainer, "trainer");
    const auto loader = state_of(training, "training loader");
    const std::string file = text_of(path, "path");
    const InUse use(state->use, "trainer"), loader_use(loader->use, "training loader");
    state->trainer->load_checkpoint(file, loader.get());
  });
}

int32_t ren_trainer_export(ren_trainer* trainer, const char* path, const ren_export_options* given,
                           ren_report** notes) {
  return guard([&] {
    const auto state = state_of(trainer, "trainer");
    const std::string file = text_of(path, "path");
    const ren_export_options options = read_options(given, "ren_export_options");
    importer::ExportOptions chosen = export_options(options);
    const InUse use(state->use, "trainer");
    refuse_places(file, "the export", state->data);
    // What the caller names goes first.
    if (!state->normalization.empty()) chosen.metadata.emplace("renaissance.normalize", state->normalization);
    if (!state->classes.empty()) chosen.metadata.emplace("renaissance.classes", state->classes);
    const Trainer& t = *state->trainer;
    if (options.use_ema != 0 && !t.options().spec.optimizer.ema)
      fail(StatusCode::invalid_state, "use_ema: this trainer keeps no averaged weights (ema_decay)");
    const importer::ImportedModel& m = state->model->imported;
    const auto parameters =
        all_parameters(t, options.use_ema != 0 ? Region::E : Region::W, m.graph.parameters.size());
    std::vector<std::vector<float>> buffers;
    for (size_t i = 0; i < m.graph.buffers.size(); ++i) buffers.push_back(t.buffer(int32_t(i)));
    give_notes(notes, importer::export_model(m, parameters, buffers, file, chosen));
  });
}

int32_t ren_trainer_plan(const ren_trainer* trainer, ren_report** out) {
  return guard([&] {
    const auto state = state_of(trainer, "trainer");
    not_null(out, "report");
    const MemoryPlan& plan = std::as_const(*state->trainer).engine().plan();
    Report report;
    report.text = plan.dump();
    report.json = json_text(plan.json());
    report.html = html(plan);
    give_report(out, std::move(report));
  });
}

}  // extern "C"
