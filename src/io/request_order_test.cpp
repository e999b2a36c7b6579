#include "io/request_order.h"

#include <gtest/gtest.h>

namespace longtune {
namespace {

// Which ticket take() hands out; 0 for none.
RequestOrder::Ticket taken(RequestOrder& order) {
  const RequestOrder::Request* request = order.take();
  return request == nullptr ? 0 : request->ticket;
}

TEST(RequestOrder, KeepsTheOrderOfARecordAndNoOther) {
  RequestOrder order;
  EXPECT_EQ(order.add(5, true, nullptr), 1);
  EXPECT_EQ(order.add(5, false, nullptr), 2);
  EXPECT_EQ(order.add(6, true, nullptr), 3);
  EXPECT_EQ(order.add(5, true, nullptr), 4);
  const RequestOrder::Request* first = order.take();
  EXPECT_EQ(first->ticket, 1);
  EXPECT_TRUE(first->is_write);
  const RequestOrder::Request* other = order.take();
  EXPECT_EQ(other->ticket, 3);
  EXPECT_EQ(taken(order), 0);
  order.finish(*other);
  EXPECT_EQ(taken(order), 0);  // another record's end lets nobody run
  order.finish(*first);
  const RequestOrder::Request* second = order.take();
  EXPECT_EQ(second->ticket, 2);
  EXPECT_FALSE(second->is_write);
  EXPECT_EQ(taken(order), 0);  // one at a time
  order.finish(*second);
  EXPECT_EQ(taken(order), 4);
}

TEST(RequestOrder, DropsWhatDoesNotRun) {
  RequestOrder order;
  (void)order.add(0, true, nullptr);
  (void)order.add(0, true, nullptr);
  (void)order.add(1, true, nullptr);
  const RequestOrder::Request* first = order.take();
  order.drop_waiting();
  EXPECT_TRUE(order.has(1));
  EXPECT_FALSE(order.has(2));
  EXPECT_FALSE(order.has(3));
  EXPECT_EQ(order.add(0, false, nullptr), 4);  // no ticket twice, and after the first as ever
  EXPECT_EQ(taken(order), 0);
  order.finish(*first);
  EXPECT_FALSE(order.is_empty());
  EXPECT_EQ(taken(order), 4);
}

}  // namespace
}  // namespace longtune
