// SPDX-License-Identifier: Apache-2.0
#include "controller/sessions/host_buffer_store.h"

#include <string>

#include <gtest/gtest.h>

namespace fairway {
namespace {

std::string Show(const HostBufferStore::Bytes& bytes) {
  return bytes.ok() ? std::string((*bytes)->view())
                    : absl::StatusCodeToString(bytes.status().code());
}

class HostBufferStoreTest : public testing::Test {
 protected:
  HostBufferStore::Ready Note(std::string name) {
    return [this, name](HostBufferStore::Bytes bytes) { log_ += name + "=" + Show(bytes) + " "; };
  }
  std::string log_;
  HostBufferStore store_;
};

TEST_F(HostBufferStoreTest, TheTakerMayComeBeforeOrAfterTheBytes) {
  store_.Take(1, Note("before"));
  store_.Store(1, Blob::Copy("a"));
  store_.Store(2, Blob::Copy("b"));
  store_.Take(2, Note("after"));
  EXPECT_EQ(log_, "before=a after=b ");
  EXPECT_EQ(store_.size(), 0u);
}

TEST_F(HostBufferStoreTest, ReadersWaitForWhatIsExpectedAndDoNotConsume) {
  store_.Expect(1);
  store_.Lookup(1, Note("early"));
  store_.Store(1, Blob::Copy("a"));
  store_.Lookup(1, Note("late"));
  EXPECT_EQ(log_, "early=a late=a ");
  EXPECT_TRUE(store_.Delete(1).ok());
  EXPECT_EQ(store_.size(), 0u);
}

TEST_F(HostBufferStoreTest, OneArrayTakesABufferAndReadersOfItAreTold) {
  store_.Take(1, Note("first"));
  store_.Take(1, Note("second"));
  store_.Lookup(1, Note("reader"));
  EXPECT_EQ(log_, "second=INVALID_ARGUMENT ");
  store_.Store(1, Blob::Copy("a"));
  EXPECT_EQ(log_, "second=INVALID_ARGUMENT reader=NOT_FOUND first=a ");
  EXPECT_EQ(store_.size(), 0u);
}

TEST_F(HostBufferStoreTest, ErrorsTakeThePlaceOfBytes) {
  store_.Expect(1);
  store_.Store(1, absl::DataLossError("worker died"));
  store_.Lookup(1, Note("reader"));
  EXPECT_EQ(log_, "reader=DATA_LOSS ");
}

TEST_F(HostBufferStoreTest, UnknownHandlesAreNotFound) {
  store_.Lookup(7, Note("reader"));
  EXPECT_EQ(log_, "reader=NOT_FOUND ");
  EXPECT_EQ(store_.Delete(7).code(), absl::StatusCode::kNotFound);
}

TEST_F(HostBufferStoreTest, WhatItHeldIsForAnotherThreadToDestroy) {
  const std::shared_ptr<const Blob> bytes = Blob::Copy("a");
  store_.Store(1, bytes);
  store_.Take(2, Note("taker"));
  store_.Expect(3);
  store_.Lookup(3, Note("reader"));
  std::shared_ptr<void> held = store_.End();
  EXPECT_EQ(log_, "reader=UNAVAILABLE ");
  EXPECT_EQ(store_.size(), 0u);
  EXPECT_EQ(bytes.use_count(), 2);
  held.reset();
  EXPECT_EQ(bytes.use_count(), 1);
}

TEST_F(HostBufferStoreTest, ThoseWhoWaitHearOfTheDeletionAndReadersOfTheEnd) {
  {
    HostBufferStore store;
    store.Expect(1);
    store.Lookup(1, Note("deleted"));
    EXPECT_TRUE(store.Delete(1).ok());
    store.Take(3, Note("taker"));
    EXPECT_TRUE(store.Delete(3).ok());
    store.Expect(2);
    store.Lookup(2, Note("ended"));
  }
  EXPECT_EQ(log_, "deleted=CANCELLED taker=CANCELLED ended=UNAVAILABLE ");
}

TEST_F(HostBufferStoreTest, AnEarlyReaderWaitsUntilTheBufferIsExpected) {
  store_.LookupEarly(1, Note("early"));
  store_.LookupEarly(1, Note("second"));
  EXPECT_EQ(log_, "second=NOT_FOUND ");
  store_.Expect(1);
  store_.LookupEarly(1, Note("late"));
  EXPECT_EQ(log_, "second=NOT_FOUND ");
  store_.StoreIfExpected(1, Blob::Copy("a"));
  EXPECT_EQ(log_, "second=NOT_FOUND early=a late=a ");
}

// What an early reader waits for is no buffer yet: bytes that come are those of nobody.
TEST_F(HostBufferStoreTest, AnEarlyReaderKeepsNoBytes) {
  store_.Expect(1);
  EXPECT_TRUE(store_.Delete(1).ok());
  store_.LookupEarly(1, Note("early"));
  store_.StoreIfExpected(1, Blob::Copy("a"));
  EXPECT_EQ(store_.size(), 0u);
  EXPECT_EQ(log_, "");
  store_.End();
  EXPECT_EQ(log_, "early=UNAVAILABLE ");
}

TEST_F(HostBufferStoreTest, EarlyReadersAreBounded) {
  for (uint64_t handle = 1; handle <= HostBufferStore::kMostEarly; ++handle)
    store_.LookupEarly(handle, Note(std::to_string(handle)));
  EXPECT_EQ(log_, "");
  store_.LookupEarly(1000, Note("1000"));
  EXPECT_EQ(log_, "1=NOT_FOUND ");
}

}  // namespace
}  // namespace fairway
