// SPDX-License-Identifier: Apache-2.0
#include "client/cli/certificates.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

TEST(CertificatesTest, EachHasALineWithItsState) {
  v1::ListCertificatesResponse listed;
  const auto add = [&](int64_t id, const std::string& worker, int64_t expires, int64_t revoked) {
    v1::Certificate* const one = listed.add_certificates();
    one->set_id(id);
    one->set_worker(worker);
    one->set_serial("0AFF");
    one->set_expires_s(expires);
    one->set_revoked_s(revoked);
  };
  add(1, "w0", 1'800'000'000, 0);
  add(2, "a-longer-name", 1'800'000'000, 1'700'000'000);
  add(3, "w1", 1'600'000'000, 0);
  const std::string text =
      CertificatesText(listed, std::chrono::sys_seconds(std::chrono::seconds(1'750'000'000)));
  EXPECT_EQ(
      text,
      "    ID  WORKER         SERIAL                            EXPIRES                  STATE\n"
      "     1  w0             0AFF                              2027-01-15 08:00:00 UTC  "
      "counts\n"
      "     2  a-longer-name  0AFF                              2027-01-15 08:00:00 UTC  "
      "revoked 2023-11-14 22:13:20 UTC\n"
      "     3  w1             0AFF                              2020-09-13 12:26:40 UTC  "
      "expired\n");
}

}  // namespace
}  // namespace fairway
