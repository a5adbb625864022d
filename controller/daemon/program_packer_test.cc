// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/program_packer.h"

#include <future>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "async/event_loop.h"
#include "async/run_until.h"
#include "fairway/v1/link.pb.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

using testing::ElementsAre;

class ProgramPackerTest : public testing::Test {
 protected:
  void Pack(uint64_t session, const std::string& program) {
    packer_.Pack(SessionId(session), std::make_shared<const std::string>(program), {},
                 [this](Frame request) {
                   v1::FromController message;
                   ASSERT_TRUE(UnpackFrame(request, &message).ok());
                   packed_.push_back(message.compile_request().program().substr(0, 2));
                 });
  }
  static std::string Long(const std::string& name) {
    return name + std::string(ProgramPacker::kPackedAtOnce, '.');
  }

  EventLoop loop_;
  BlockingPool pool_{"pack", 1};
  ProgramPacker packer_{loop_, pool_};
  std::vector<std::string> packed_;  // the first two letters of each, in order
};

TEST_F(ProgramPackerTest, AShortProgramIsPackedAtOnce) {
  Pack(1, "a1");
  EXPECT_THAT(packed_, ElementsAre("a1"));
}

TEST_F(ProgramPackerTest, SessionsTakeTurns) {
  std::promise<void> go;
  pool_.Run([held = go.get_future().share()] { held.wait(); });
  for (const char* const name : {"a1", "a2", "a3", "a4"}) Pack(1, Long(name));
  Pack(2, Long("b1"));
  Pack(3, Long("c1"));
  go.set_value();
  ASSERT_TRUE(RunUntil(loop_, [this] { return packed_.size() == 6; }));
  EXPECT_THAT(packed_, ElementsAre("a1", "b1", "c1", "a2", "a3", "a4"));
}

}  // namespace
}  // namespace fairway
