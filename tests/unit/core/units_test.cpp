// SPDX-License-Identifier: BSD-3-Clause
#include <concepts>
#include <type_traits>

#include <gtest/gtest.h>

#include <upcie/units.hpp>

namespace upcie {
namespace {

template <class A, class B>
concept Addable = requires(A a, B b) {
    a + b;
};

TEST(Units, DifferentMeaningsDoNotConvert) {
    static_assert(!std::convertible_to<Iova, BusAddress>);
    static_assert(!std::convertible_to<std::uint64_t, Iova>);
    static_assert(!std::convertible_to<Iova, std::uint64_t>);
    static_assert(!std::convertible_to<Iova, ByteCount>);
    static_assert(!std::convertible_to<ByteCount, Iova>);
    static_assert(!std::convertible_to<Qid, Cid>);
    static_assert(!Addable<Iova, Iova>);
    static_assert(Addable<Iova, ByteCount>);
    static_assert(std::is_standard_layout_v<DmaAddress> && sizeof(DmaAddress) == 8);
}

TEST(Units, OffsetsMoveAddresses) {
    EXPECT_EQ(Iova{0x1000} + 4_KiB, Iova{0x2000});
    EXPECT_EQ(Iova{0x3000} - Iova{0x1000}, 8_KiB);
    EXPECT_EQ((3_MiB).value(), 3U << 20);
    EXPECT_EQ((5_GiB).value(), 5ULL << 30);
}

} // namespace
} // namespace upcie
