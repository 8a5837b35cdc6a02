// SPDX-License-Identifier: Apache-2.0
// Packing that is interrupted, or that meets files of others: nothing is lost, and what is done is gone on
// with.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "data/augment/transform.h"
#include "data/mutation.h"
#include "data/pack_support.h"
#include "data/source/dts_format.h"
#include "engine/base/file.h"

namespace ren::data::test {
namespace {

// Stopped after any picture, the job goes on and ends with the same bytes.
TEST_F(Pack, GoesOnWhereItWasStopped) {
  const std::string source = folder_source();
  pack(source, target("out/whole.dts"));
  const std::string whole = read_file(target("out/whole.dts"));
  using Phase = JobProgress::Phase;
  for (const Phase phase : {Phase::packing, Phase::verifying})
    for (int64_t at = 1; at <= 24; at += 5) {
      const auto stop_there = [&](const JobProgress& p) { return p.phase != phase || p.done < at; };
      const Error error = error_of([&] { pack(source, target(), {}, stop_there); });
      EXPECT_EQ(error.code(), StatusCode::cancelled);
      EXPECT_NE(std::string(error.what()).find("a.dts.part': packing again goes on"), std::string::npos)
          << error.what();
      EXPECT_FALSE(exists("out/a.dts"));
      EXPECT_EQ(error_of([&] { open_dataset(target() + ".part"); }).code(), StatusCode::invalid_data);
      std::string said;
      const PackReport report = pack(source, target(), {}, [&](const JobProgress& p) {
        said += p.message;
        return true;
      });
      EXPECT_NE(said.find("going on with it"), std::string::npos) << said;
      EXPECT_GE(report.continued, phase == Phase::packing ? at : 24);
      EXPECT_EQ(report.pictures, 24);
      EXPECT_TRUE(read_file(target()) == whole) << at;
      fs::remove(target());
    }
}

// What a killed process leaves: any number of bytes, the last of them not on disk perhaps.
TEST_F(Pack, GoesOnAfterAKillAnywhere) {
  const std::string source = folder_source(2);
  pack(source, target("out/whole.dts"));
  const std::string whole = read_file(target("out/whole.dts"));
  const auto never_rename = [&](const JobProgress& p) {
    return p.phase != JobProgress::Phase::verifying || p.done == 0;
  };
  error_of([&] { pack(source, target(), {}, never_rename); });
  const std::string part = read_file(target() + ".part");
  ASSERT_EQ(part.size(), whole.size());
  const size_t first = fs::file_size(folder_.path("train/bird/bird 0.jpg"));
  for (size_t bytes = 0; bytes <= part.size(); bytes += bytes < 600 ? 13 : 97) {
    folder_.write("out/a.dts.part", part.substr(0, bytes));
    const PackReport report = pack(source, target());
    ASSERT_TRUE(read_file(target()) == whole) << bytes;
    EXPECT_EQ(report.continued > 0, bytes >= dts::kHeaderBytes + dts::kRecordHeaderBytes + first) << bytes;
  }
  for (size_t at = 130; at < part.size(); at += 531) {  // a block that never reached the disk
    std::string torn = part;
    torn.replace(at, std::min<size_t>(300, torn.size() - at), std::min<size_t>(300, torn.size() - at), '\0');
    folder_.write("out/a.dts.part", torn);
    EXPECT_LE(pack(source, target()).continued, 12);
    ASSERT_TRUE(read_file(target()) == whole) << at;
  }
}

// Whatever an unfinished file has become, the pack is right or there is an error.
TEST_F(Pack, MutatedPartsNeverCrash) {
  const std::string source = folder_source(1);
  pack(source, target("out/whole.dts"));
  const std::string whole = read_file(target("out/whole.dts"));
  error_of([&] {
    pack(source, target(), {}, [](const JobProgress& p) { return p.phase != JobProgress::Phase::verifying; });
  });
  const std::string part = read_file(target() + ".part");
  expect_survives(600, 10, {300, 5}, [&](uint64_t i, RandomStream& random) {
    // Half of the changes go to the file's header and the first record's.
    const size_t head = i % 2 ? part.size() : dts::kHeaderBytes + dts::kRecordHeaderBytes;
    folder_.write("out/a.dts.part", mutate(part.substr(0, head), random) + part.substr(head));
    pack(source, target());
    ASSERT_TRUE(read_file(target()) == whole) << i;
    fs::remove(target());
  });
}

TEST_F(Pack, BeginsAnewForAnotherJob) {
  const std::string source = folder_source();
  const auto stop_half_way = [](const JobProgress& p) {
    return p.phase != JobProgress::Phase::packing || p.done < 10;
  };
  const auto said_after = [&](const std::function<void()>& change, const PackOptions& options) {
    error_of([&] { pack(source, target(), {}, stop_half_way); });
    EXPECT_TRUE(exists("out/a.dts.part"));
    change();
    std::string said;
    const PackReport report = pack(source, target(), options, [&](const JobProgress& p) {
      said += p.message;
      return true;
    });
    fs::remove(target());
    return said + (report.continued > 0 ? " continued" : "");
  };
  const std::string anew = "starting anew";
  PackOptions small, skipping;
  small.short_side = 10;
  skipping.bad_files = BadFiles::skip;
  EXPECT_NE(said_after([] {}, {}).find("continued"), std::string::npos);
  EXPECT_NE(said_after([] {}, skipping).find("continued"), std::string::npos);  // changes no byte
  EXPECT_NE(said_after([] {}, small).find(anew), std::string::npos);
  EXPECT_NE(said_after([&] { folder_.write("train/cat/more.jpg", jpeg_of(8, 8, 1)); }, {}).find(anew),
            std::string::npos);
  const auto touch = [&] {
    fs::last_write_time(folder_.path("train/cat/more.jpg"),
                        fs::last_write_time(folder_.path("train/cat/more.jpg")) + std::chrono::seconds(2));
  };
  EXPECT_NE(said_after(touch, {}).find(anew), std::string::npos);
  const auto rename_class = [&] {
    for (const char* split : {"train", "val"})
      fs::rename(folder_.path(fmt::format("{}/cat", split)), folder_.path(fmt::format("{}/dog", split)));
  };
  EXPECT_NE(said_after(rename_class, {}).find(anew), std::string::npos);
}

TEST_F(Pack, AFileThatBecameAFolder) {
  const std::string source = folder_source();
  const Dataset set = open_dataset(source);
  fs::remove(folder_.path("train/cat/cat 2.jpg"));
  folder_.make_folder("train/cat/cat 2.jpg");
  // Not io, which is what befalls the file that is written.
  EXPECT_EQ(error_of([&] { pack_dataset(set, target(), {}, {}); }).code(), StatusCode::invalid_data);
}

TEST_F(Pack, AVanishedFile) {
  const std::string source = folder_source();
  const Dataset set = open_dataset(source);
  fs::remove(folder_.path("train/cat/cat 2.jpg"));
  const Error error = error_of([&] { pack_dataset(set, target(), {}, {}); });
  EXPECT_EQ(error.code(), StatusCode::not_found);
  EXPECT_NE(std::string(error.what()).find("train/cat/cat 2.jpg': No such file"), std::string::npos)
      << error.what();
  EXPECT_NE(std::string(error.what()).find("The 6 pictures packed so far are in"), std::string::npos)
      << error.what();
}

// A limit on the size of files is what a full disk is: writing fails at some byte.
TEST_F(Pack, AFullDisk) {
  const std::string source = folder_source();
  pack(source, target("out/whole.dts"));
  const std::string whole = read_file(target("out/whole.dts"));
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  for (const size_t room : {whole.size() / 2, whole.size() - 100}) {
    const rlimit small{room, old.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const Error error = error_of([&] { pack(source, target()); });
    setrlimit(RLIMIT_FSIZE, &old);
    EXPECT_EQ(error.code(), StatusCode::io);
    EXPECT_NE(std::string(error.what()).find("cannot write '"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("File too large"), std::string::npos) << error.what();
    EXPECT_FALSE(exists("out/a.dts"));
    EXPECT_GT(pack(source, target()).continued, 5);
    EXPECT_TRUE(read_file(target()) == whole);
    fs::remove(target());
  }
  signal(SIGXFSZ, handler);
}

TEST_F(Pack, ReplacesNothingElse) {
  const std::string source = folder_source();
  const auto refused = [&](const std::string& uri, const std::string& path, const std::string& text) {
    const Error error = error_of([&] { pack(uri, path); });
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    return error.code();
  };
  const std::string picture = folder_.path("train/cat/cat 1.jpg"), before = read_file(picture);
  EXPECT_EQ(refused(source, picture, "is no .dts file"), StatusCode::invalid_argument);
  EXPECT_EQ(read_file(picture), before);
  EXPECT_EQ(refused(source, folder_.path("train"), "folder"), StatusCode::io);
  EXPECT_EQ(refused(source, folder_.path("no/such/a.dts"), "No such file"), StatusCode::io);
  folder_.write("out/a.dts.part", "half of a download");
  EXPECT_EQ(refused(source, target(), "no unfinished .dts file"), StatusCode::invalid_argument);
  EXPECT_EQ(read_file(target() + ".part"), "half of a download");
  fs::remove(target() + ".part");
  pack(source, target());
  EXPECT_EQ(refused(target(), target(), "is the data set itself"), StatusCode::invalid_argument);
  fs::create_symlink(target(), folder_.path("link.dts"));
  EXPECT_EQ(refused(target(), folder_.path("link.dts"), "is the data set itself"),
            StatusCode::invalid_argument);
  pack(source, folder_.path("link.dts"));  // an older pack is replaced, and the link stays
  EXPECT_TRUE(fs::is_symlink(folder_.path("link.dts")));
}

// What can't be read can't be known to be a packed data set.
TEST_F(Pack, KeepsWhatItCannotRead) {
  const std::string source = folder_source();
  const std::string secret = folder_.path("out/a.dts");
  target();
  folder_.write("out/a.dts", "somebody's work");
  for (const char* name : {"", "out"}) fs::permissions(folder_.path(name), fs::perms::all);
  fs::permissions(secret, fs::perms::none);
  const bool was_root = geteuid() == 0;
  ASSERT_EQ(seteuid(was_root ? 65534 : geteuid()), 0);  // root reads all
  const Error error = error_of([&] { pack(source, secret); });
  ASSERT_EQ(seteuid(was_root ? 0 : geteuid()), 0);
  EXPECT_EQ(error.code(), StatusCode::invalid_argument);
  EXPECT_NE(std::string(error.what()).find("can't be seen"), std::string::npos) << error.what();
  fs::permissions(secret, fs::perms::all);
  EXPECT_EQ(read_file(secret), "somebody's work");
  EXPECT_FALSE(exists("out/a.dts.part"));
}

// A file that somebody puts there while it is packed is not replaced, whatever it is.
TEST_F(Pack, KeepsATargetThatAppears) {
  const std::string source = folder_source();
  pack(source, target("out/other.dts"));
  for (const bool is_there_before : {false, true})
    for (const std::string& content : {std::string("new"), read_file(folder_.path("out/other.dts"))}) {
      fs::remove(target());
      if (is_there_before) fs::copy(folder_.path("out/other.dts"), target());
      bool made = false;
      const Error error = error_of([&] {
        pack(source, target(), {}, [&](const JobProgress& p) {
          if (p.phase == JobProgress::Phase::verifying && !made) {
            fs::remove(target());
            folder_.write("out/a.dts", content);
            made = true;
          }
          return true;
        });
      });
      EXPECT_EQ(error.code(), StatusCode::io);
      EXPECT_NE(std::string(error.what()).find("made or changed by someone else meanwhile"),
                std::string::npos)
          << error.what();
      EXPECT_EQ(read_file(target()), content);
      fs::remove(target());
      EXPECT_EQ(pack(source, target()).continued, 24);  // the .part was complete
      EXPECT_TRUE(read_file(target()) == read_file(folder_.path("out/other.dts")));
      EXPECT_EQ(read_file(target()).substr(72, 8), std::string(8, '\0'));  // the job went with the name
    }
}

// FILE.part is somebody's, too.
TEST_F(Pack, ForeignPartsAreKept) {
  const std::string source = folder_source(), part = target() + ".part";
  const auto refused = [&](const std::string& uri, const std::string& says) {
    const std::string before = read_file(part);
    const Error error = error_of([&] { pack(uri, target()); });
    EXPECT_EQ(error.code(), StatusCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    EXPECT_TRUE(read_file(part) == before);
    EXPECT_FALSE(exists("out/a.dts"));
  };
  pack(source, target("out/source.dts"));
  const std::string whole = read_file(folder_.path("out/source.dts"));
  fs::create_hard_link(folder_.path("out/source.dts"), part);
  refused(folder_.path("out/source.dts"), "is the data set itself");
  refused(source, "is a complete .dts file");
  fs::remove(part);
  folder_.write("out/a.dts.part", whole);
  refused(part, "is the data set itself");
  refused(source, "is a complete .dts file");
  folder_.write("out/a.dts.part", "notes");  // shorter than what a .dts begins with
  refused(source, "is no unfinished .dts file");
  std::string damaged = whole;
  damaged[60] ^= 1;
  folder_.write("out/a.dts.part", damaged);
  refused(source, "can't be told to be unfinished");
}

// Starting anew doesn't write into a file that has another name, too.
TEST_F(Pack, HardLinkedParts) {
  const std::string source = folder_source(), part = target() + ".part";
  const auto half = [](const JobProgress& p) {
    return p.phase != JobProgress::Phase::packing || p.done < 10;
  };
  error_of([&] { pack(source, target(), {}, half); });
  fs::create_hard_link(part, folder_.path("out/kept"));
  const std::string kept = read_file(part);
  EXPECT_EQ(pack(source, target()).continued, 0);
  EXPECT_TRUE(read_file(folder_.path("out/kept")) == kept);
  fs::create_hard_link(folder_.path("out/kept"), part);
  PackOptions other;
  other.short_side = 10;
  EXPECT_EQ(pack(source, target(), other).continued, 0);
  EXPECT_TRUE(read_file(folder_.path("out/kept")) == kept);
}

// What the message says about a later run is so.
TEST_F(Pack, SaysWhatIsKept) {
  const std::string source = folder_source(), part = target() + ".part";
  pack(source, target("out/whole.dts"));
  const std::string whole = read_file(folder_.path("out/whole.dts"));
  using Phase = JobProgress::Phase;
  const auto interfered = [&](Phase phase, const std::function<bool()>& act) {
    bool done = false;
    return error_of([&] {
      pack(source, target(), {}, [&](const JobProgress& p) {
        if (done || p.phase != phase || p.done < 10) return true;
        done = true;
        return act();
      });
    });
  };
  const auto expect_text = [](const Error& error, StatusCode code, const std::string& says) {
    EXPECT_EQ(error.code(), code);
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
  };
  const std::string gone = "was moved, removed or cut meanwhile: packing again starts anew";
  const auto removed = [&] { return fs::remove(part); };
  expect_text(interfered(Phase::packing, removed), StatusCode::io, gone);
  EXPECT_FALSE(exists("out/a.dts"));
  const auto replaced = [&] {
    fs::remove(part);
    folder_.write("out/a.dts.part", "somebody else's");
    return true;
  };
  expect_text(interfered(Phase::verifying, replaced), StatusCode::io, gone);
  EXPECT_EQ(read_file(part), "somebody else's");
  EXPECT_FALSE(exists("out/a.dts"));
  fs::remove(part);
  const auto cut = [&] {
    fs::resize_file(part, 200);
    return false;
  };
  expect_text(interfered(Phase::verifying, cut), StatusCode::cancelled, gone);
  EXPECT_EQ(pack(source, target()).continued, 0);
  fs::remove(target());
  // Stopped while the part is looked through: it stays as it was.
  interfered(Phase::packing, [] { return false; });
  const std::string before = read_file(part);
  Error error = error_of([&] {
    pack(source, target(), {},
         [](const JobProgress& p) { return p.phase != Phase::reading_part || p.done < 2; });
  });
  expect_text(error, StatusCode::cancelled, "is as it was: packing again goes on with it");
  EXPECT_TRUE(read_file(part) == before);
  EXPECT_GE(pack(source, target()).continued, 10);
  fs::remove(target());
  // A disk that loses a bit of picture 4 after it was written, before it is read back.
  const size_t at = whole.find(read_file(folder_.path("train/cat/cat 0.jpg"))) + 20;
  bool done = false;
  error = error_of([&] {
    pack(source, target(), {}, [&](const JobProgress& p) {
      if (done || p.phase != Phase::packing || p.done < 24) return true;
      std::fstream(part, std::ios::in | std::ios::out | std::ios::binary)
          .seekp(int64_t(at))
          .put(char(whole[at] ^ 1));
      return done = true;
    });
  });
  EXPECT_TRUE(done);
  expect_text(error, StatusCode::io, "what was read back from the disk isn't what was written");
  expect_text(error, StatusCode::io, "The 4 pictures packed so far are in");
  EXPECT_EQ(pack(source, target()).continued, 4);
  EXPECT_TRUE(read_file(target()) == whole);
}

TEST_F(Pack, ASourceThatChangesMeanwhile) {
  const std::string source = folder_source();
  PackOptions skipping;
  skipping.bad_files = BadFiles::skip, skipping.threads = 1;
  const auto packed_while = [&](const std::string& uri, const std::function<void()>& change) {
    bool done = false;
    return error_of([&] {
      pack(uri, target(), skipping, [&](const JobProgress& p) {
        if (!done && p.phase == JobProgress::Phase::packing && p.done == 1) change();
        done = done || p.done > 0;
        return true;
      });
    });
  };
  const auto expect_refusal = [&](const Error& error) {
    EXPECT_EQ(error.code(), StatusCode::io);
    EXPECT_NE(std::string(error.what()).find("was changed after packing began"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("packing again starts anew"), std::string::npos) << error.what();
  };
  const std::string last = folder_.path("val/ñu/ñu 3.jpg");
  expect_refusal(packed_while(source, [&] { folder_.write("val/ñu/ñu 3.jpg", "half of a new one"); }));
  expect_refusal(packed_while(source, [&] { folder_.write("val/ñu/ñu 3.jpg", jpeg_of(9, 9, 77)); }));
  expect_refusal(packed_while(
      source, [&] { fs::last_write_time(last, fs::last_write_time(last) + std::chrono::seconds(2)); }));
  const std::string tar = folder_.write("a.tar", tar_of(class_folders()));
  expect_refusal(packed_while(
      tar, [&] { fs::last_write_time(tar, fs::last_write_time(tar) + std::chrono::seconds(2)); }));
  EXPECT_EQ(pack(source, target()).continued, 0);
}

TEST_F(Pack, OneAtATime) {
  const std::string source = folder_source();
  bool tried = false;
  pack(source, target(), {}, [&](const JobProgress& p) {
    if (p.done == 3 && !tried) {
      tried = true;
      EXPECT_NE(std::string(error_of([&] { pack(source, target()); }).what()).find("by another process"),
                std::string::npos);
    }
    return true;
  });
  EXPECT_TRUE(tried);
  EXPECT_EQ(open_dataset(target()).train().size(), 12);
}

}  // namespace
}  // namespace ren::data::test
