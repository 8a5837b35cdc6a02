// SPDX-License-Identifier: Apache-2.0
// Where an export writes, and what is left when it can't or is killed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "support.h"

namespace ren::importer::testing {
namespace {

class Export : public ::testing::Test {
 protected:
  // The small model with all its floats in weights.bin.
  std::string external_model() {
    ModelMaker m = small_model();
    std::string data;
    for (auto& tensor : *m.graph().mutable_initializer()) {
      const auto set = [&](const char* key, const std::string& value) {
        auto& e = *tensor.add_external_data();
        e.set_key(key);
        e.set_value(value);
      };
      set("location", "weights.bin");
      set("offset", std::to_string(data.size()));
      set("length", std::to_string(tensor.raw_data().size()));
      data += tensor.raw_data();
      tensor.clear_raw_data();
      tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    }
    write_file(scratch_ / "weights.bin", data);
    return m.save(scratch_ / "model.onnx");
  }

  std::set<std::string> files(const std::string& folder = ".") const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(scratch_.path() / folder))
      names.insert(entry.path().filename().string());
    return names;
  }

  static std::vector<std::vector<float>> moved(const ImportedModel& model, float by) {
    auto parameters = model.parameters;
    for (auto& values : parameters)
      for (float& v : values) v += by;
    return parameters;
  }

  static StatusCode refusal(const std::function<void()>& action) {
    try {
      action();
      return StatusCode::ok;
    } catch (const Error& e) {
      return e.code();
    }
  }

  ScratchFolder scratch_;
};

TEST_F(Export, NeedsNothingOfTheSourcesFilesAnyMore) {
  const auto model = import_model(external_model());
  EXPECT_EQ(model.external_files, std::vector<std::string>{fs::canonical(scratch_ / "weights.bin").string()});
  fs::remove(scratch_ / "weights.bin");
  fs::remove(scratch_ / "model.onnx");
  for (const float by : {0.0f, 1.0f}) {  // unchanged tensors are written from memory, too
    const auto parameters = moved(model, by);
    export_model(model, parameters, model.buffers, scratch_ / "out.onnx");
    const auto again = import_model(scratch_ / "out.onnx");
    EXPECT_EQ(again.parameters, parameters);
    EXPECT_EQ(again.buffers, model.buffers);
  }
}

TEST_F(Export, TheLongestNamesCanBeWritten) {
  const auto inside = import_model(small_model().save(scratch_ / "inside.onnx"));
  const auto outside = import_model(external_model());
  for (const size_t length : {size_t{199}, size_t{201}, size_t{245}, size_t{255}}) {
    const std::string name = std::string(length - 5, 'n') + ".onnx";
    for (const ImportedModel* model : {&inside, &outside}) {
      const auto parameters = moved(*model, 2);
      export_model(*model, parameters, model->buffers, scratch_ / name);
      EXPECT_EQ(import_model(scratch_ / name).parameters, parameters) << length;
    }
  }
}

TEST_F(Export, OwnDataFilesAreRefusedAsTargets) {
  const auto model = import_model(external_model());
  fs::create_symlink("weights.bin", scratch_ / "link");
  fs::create_hard_link(scratch_ / "weights.bin", scratch_ / "hard");
  const std::string data = read_file(scratch_ / "weights.bin");
  for (const char* target : {"weights.bin", "./weights.bin", "link", "hard"})
    EXPECT_EQ(refusal([&] { export_model(model, model.parameters, model.buffers, scratch_ / target); }),
              StatusCode::invalid_argument)
        << target;
  EXPECT_EQ(read_file(scratch_ / "weights.bin"), data);
}

// Others may refer to it: copies and hard links of the former model, another process that writes the target.
TEST_F(Export, NoDataFileIsEverRemoved) {
  const std::string source = external_model(), target = scratch_ / "out.onnx";
  auto model = import_model(source);
  EXPECT_TRUE(export_model(model, moved(model, 1), model.buffers, target).empty());
  const auto first = files();
  EXPECT_EQ(first.size(), 4u);  // the source's two and the target's two
  fs::create_hard_link(target, scratch_ / "hard.onnx");
  fs::copy_file(target, scratch_ / "copy.onnx");
  const auto notes = export_model(model, moved(model, 2), model.buffers, target);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find(".data' is no longer referred to by '" + target + "'; delete it if nothing else"),
            std::string::npos)
      << notes[0];
  EXPECT_EQ(import_model(target).parameters, moved(model, 2));
  for (const char* name : {"hard.onnx", "copy.onnx"})
    EXPECT_EQ(import_model(scratch_ / name).parameters, moved(model, 1)) << name;
  // Once: the next export speaks of the second's data only; one of the same values of none.
  const auto again = export_model(model, moved(model, 3), model.buffers, target);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_NE(again[0], notes[0]);
  EXPECT_TRUE(export_model(model, moved(model, 3), model.buffers, target).empty());
  // In place: the source's data is spoken of, too.
  const auto in_place = export_model(model, moved(model, 1), model.buffers, source);
  ASSERT_EQ(in_place.size(), 1u);
  EXPECT_NE(in_place[0].find("weights.bin' is no longer"), std::string::npos) << in_place[0];
  EXPECT_TRUE(fs::exists(scratch_ / "weights.bin"));
}

TEST_F(Export, DataThatIsThereIsUsedAsItIs) {
  const auto model = import_model(external_model());
  const std::string target = scratch_ / "out.onnx";
  export_model(model, moved(model, 1), model.buffers, target);
  const std::string data = import_model(target).external_files.at(0), content = read_file(data);
  const auto inode = [&] {
    struct stat found {};
    EXPECT_EQ(stat(data.c_str(), &found), 0);
    return found.st_ino;
  };
  const auto before = inode();
  fs::create_hard_link(data, scratch_ / "held");  // so that the number isn't given to another file
  export_model(model, moved(model, 1), model.buffers, target);
  EXPECT_EQ(inode(), before);
  // Damaged, in the same size or in another, it is replaced.
  std::string damaged = content;
  damaged[damaged.size() / 2] = char(damaged[damaged.size() / 2] ^ 1);
  for (const std::string& bad : {damaged, content.substr(1), std::string()}) {
    write_file(data, bad);
    export_model(model, moved(model, 1), model.buffers, target);
    EXPECT_EQ(read_file(data), content);
  }
}

// Each writer finds no fault, and the target is one of theirs.
TEST_F(Export, TwoProcessesWriteOneTarget) {
  const auto model = import_model(external_model());
  const std::string target = scratch_ / "out.onnx";
  for (int round = 0; round < 20; ++round) {
    pid_t writers[2];
    for (int w = 0; w < 2; ++w) {
      writers[w] = fork();
      if (writers[w] != 0) continue;
      int code = 0;
      try {
        for (int i = 0; i < 10; ++i)
          export_model(model, moved(model, float(1 + w + 2 * (round % 3))), model.buffers, target);
      } catch (const std::exception& e) {
        fprintf(stderr, "%s\n", e.what());
        code = 1;
      }
      _exit(code);
    }
    for (const pid_t writer : writers) {
      int status = -1;
      waitpid(writer, &status, 0);
      EXPECT_EQ(status, 0) << round;
    }
    const auto found = import_model(target).parameters;
    const float least = float(1 + 2 * (round % 3));
    EXPECT_TRUE(found == moved(model, least) || found == moved(model, least + 1)) << round;
  }
}

TEST_F(Export, LinksAreFollowed) {
  const auto model = import_model(external_model());
  fs::create_directory(scratch_ / "elsewhere");
  fs::create_symlink("elsewhere/real.onnx", scratch_ / "link.onnx");
  for (const float by : {1.0f, 2.0f}) {
    export_model(model, moved(model, by), model.buffers, scratch_ / "link.onnx");
    EXPECT_EQ(import_model(scratch_ / "elsewhere/real.onnx").parameters, moved(model, by));
  }
  EXPECT_TRUE(fs::is_symlink(scratch_ / "link.onnx"));
  EXPECT_EQ(files("elsewhere").size(), 3u);  // and the former data
}

// Killed at any moment, the target is one export or the other, with its own data.
TEST_F(Export, AKillLeavesAWholeModel) {
  const auto model = import_model(external_model());
  const auto one = moved(model, 1), two = moved(model, 2);
  const std::string target = scratch_ / "out.onnx";
  export_model(model, one, model.buffers, target);
  int ones = 0, twos = 0;
  for (int round = 0; round < 40; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (int i = 0;; ++i) export_model(model, i % 2 == 0 ? two : one, model.buffers, target);
    }
    usleep(useconds_t(2000 + 617 * round));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const auto found = import_model(target).parameters;
    EXPECT_TRUE(found == one || found == two) << round;
    ones += found == one;
    twos += found == two;
  }
  EXPECT_GT(ones, 0);
  EXPECT_GT(twos, 0);
  export_model(model, one, model.buffers, target);
  // The source's two, the target, the data of both: nothing is left half written.
  EXPECT_EQ(files().size(), 5u);
}

TEST_F(Export, MetadataThatWouldBeRefusedLaterIsRefusedNow) {
  const auto model = import_model(small_model().save(scratch_ / "model.onnx"));
  const auto refused = [&](const char* key, const char* value) {
    ExportOptions options;
    options.metadata[key] = value;
    const StatusCode code = refusal(
        [&] { export_model(model, model.parameters, model.buffers, scratch_ / "out.onnx", options); });
    if (code == StatusCode::ok) import_model(scratch_ / "out.onnx");
    return code == StatusCode::invalid_argument;
  };
  for (const char* junk : {"", "junk", "{}", "[1]", "[\"a\"", "null"}) {
    EXPECT_TRUE(refused("renaissance.trainable", junk)) << junk;
    EXPECT_TRUE(refused("renaissance.classes", junk)) << junk;
    EXPECT_TRUE(refused("renaissance.normalize", junk)) << junk;
    EXPECT_FALSE(refused("author", junk)) << junk;
  }
  for (const char* junk :
       {"{\"mean\":[0.5]}", "{\"mean\":[0.5],\"std\":[0]}", "{\"mean\":[0.5],\"std\":[1,1]}",
        "{\"mean\":[],\"std\":[]}", "{\"mean\":[\"a\"],\"std\":[1]}", "{\"mean\":[0.5],\"std\":[1e99]}"})
    EXPECT_TRUE(refused("renaissance.normalize", junk)) << junk;
  EXPECT_FALSE(refused("renaissance.trainable", "[\"conv.weight\"]"));
  EXPECT_FALSE(refused("renaissance.classes", "[\"a\",\"b\"]"));
  EXPECT_FALSE(refused("renaissance.normalize", "{\"mean\":[0.5],\"std\":[0.25]}"));
}

}  // namespace
}  // namespace ren::importer::testing
