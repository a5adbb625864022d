// SPDX-License-Identifier: Apache-2.0
#include "identity/private_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

namespace fairway {
namespace {

namespace fs = std::filesystem;

class PrivateFile : public testing::Test {
 protected:
  PrivateFile() : folder_(::mkdtemp(name_)) {}
  ~PrivateFile() override { fs::remove_all(folder_); }
  static std::string TextOf(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  auto Files() const { return std::distance(fs::directory_iterator(folder_), {}); }

  char name_[64] = "/tmp/fairway-private-XXXXXX";
  std::string folder_;
};

TEST_F(PrivateFile, ANewOneIsItsOwnersAlone) {
  ASSERT_TRUE(WriteNewPrivate(folder_ + "/a", "text").ok());
  struct stat facts {};
  ASSERT_EQ(::stat((folder_ + "/a").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777U, 0600U);
  EXPECT_EQ(TextOf(folder_ + "/a"), "text");
  EXPECT_EQ(Files(), 1);
}

TEST_F(PrivateFile, ANewOneReplacesNoFileAndNoLinkAndNoFileOfANameLikeItsOwn) {
  for (const char* const name : {"/a", "/a.new"}) std::ofstream(folder_ + name) << "kept";
  fs::create_symlink("nowhere", folder_ + "/link");
  for (const char* const name : {"/a", "/link"}) {
    const absl::Status status = WriteNewPrivate(folder_ + name, "text");
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
  }
  EXPECT_EQ(TextOf(folder_ + "/a"), "kept");
  EXPECT_EQ(TextOf(folder_ + "/a.new"), "kept");
  EXPECT_TRUE(fs::is_symlink(folder_ + "/link"));
  EXPECT_EQ(Files(), 3);
}

TEST_F(PrivateFile, AFolderThatIsMissingIsTold) {
  EXPECT_EQ(Text(WriteNewPrivate(folder_ + "/no/a", "text")),
            "cannot write " + folder_ + "/no/a: No such file or directory");
}

}  // namespace
}  // namespace fairway
