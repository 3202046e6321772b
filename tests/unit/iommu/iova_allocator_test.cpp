// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <upcie/iommu/iova_allocator.hpp>

namespace upcie::iommu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace upcie::literals;

IovaRange range(std::uint64_t first, std::uint64_t last) {
    return {Iova{first}, Iova{last}};
}

IovaAllocator make(const std::vector<IovaRange>& ranges, ByteCount granule = 4_KiB) {
    return *IovaAllocator::create(ranges, granule);
}

TEST(IovaAllocator, RespectsTheHolesOfARealAperture) {
    // What an Intel IOMMU under QEMU reports: 39 bits with the MSI window taken out.
    auto allocator = make({range(0, 0xfedfffff), range(0xfef00000, (1ULL << 39) - 1)});
    const auto big = allocator.allocate(4_GiB);
    ASSERT_TRUE(big);
    EXPECT_EQ(*big, Iova{0xfef00000});
    EXPECT_TRUE(allocator.reserve(Iova{0xfedff000}, 8_KiB).error().is(EINVAL)); // runs into the window
    EXPECT_TRUE(allocator.reserve(Iova{0xfee00000}, 4_KiB).error().is(EINVAL)); // inside it
    EXPECT_TRUE(allocator.reserve(Iova{1ULL << 39}, 4_KiB).error().is(EINVAL)); // above the aperture
    EXPECT_TRUE(allocator.reserve(Iova{0xfedff000}, 4_KiB));
}

TEST(IovaAllocator, AlignmentIsOfTheAddressTheDeviceSees) {
    auto allocator = make({range(0x1000, 0xffffff)});
    EXPECT_EQ(*allocator.allocate(4_KiB), Iova{0x1000});
    EXPECT_EQ(*allocator.allocate(4_KiB, 2_MiB), Iova{0x200000});
    EXPECT_EQ(*allocator.allocate(8_KiB, 1_B), Iova{0x2000});
    EXPECT_TRUE(allocator.allocate(4_KiB, 3_B).error().is(EINVAL));
    EXPECT_TRUE(allocator.allocate(4_KiB, 0_B).error().is(EINVAL));
    EXPECT_TRUE(allocator.allocate(4_KiB, ByteCount{1ULL << 63}).error().is(ENOSPC));
}

TEST(IovaAllocator, RefusesNothingPartsAndOverflow) {
    auto allocator = make({range(0x1000, ~0ULL)});
    EXPECT_TRUE(allocator.allocate(0_B).error().is(EINVAL));
    EXPECT_TRUE(allocator.allocate(4097_B).error().is(EINVAL));
    EXPECT_TRUE(allocator.allocate(ByteCount{~0xfffULL + 0x1000}).error().is(EINVAL)); // 2^64, truncated to 0
    EXPECT_TRUE(allocator.reserve(Iova{0x1000}, 0_B).error().is(EINVAL));
    EXPECT_TRUE(allocator.reserve(Iova{0x1001}, 4_KiB).error().is(EINVAL));
    EXPECT_TRUE(allocator.reserve(Iova{~0xfffULL}, 8_KiB).error().is(EINVAL));
    EXPECT_EQ(*allocator.allocate(ByteCount{~0ULL - 0xfff}), Iova{0x1000}); // all of it, to 2^64-1
    EXPECT_TRUE(allocator.free_ranges().empty());
    EXPECT_EQ(allocator.largest_free(), 0_B);
    EXPECT_TRUE(allocator.free(Iova{0x1000}, ByteCount{~0ULL - 0xfff}));
    EXPECT_THAT(allocator.free_ranges(), ElementsAre(range(0x1000, ~0ULL)));
}

TEST(IovaAllocator, TheWholeSpaceIsARangeToo) {
    auto allocator = make({range(0, ~0ULL)});
    EXPECT_EQ(allocator.largest_free().value(), ~0ULL); // saturated
    EXPECT_TRUE(allocator.reserve(Iova{~0xfffULL}, 4_KiB));
    EXPECT_TRUE(allocator.reserve(Iova{0}, 4_KiB));
    EXPECT_TRUE(allocator.free(Iova{~0xfffULL}, 4_KiB)); // must not join with address 0
    EXPECT_THAT(allocator.free_ranges(), ElementsAre(range(0x1000, ~0ULL)));
}

TEST(IovaAllocator, Address0IsLegalAndComesLast) {
    auto allocator = make({range(0, 0x2fff)});
    EXPECT_EQ(*allocator.allocate(4_KiB), Iova{0x1000});
    EXPECT_EQ(*allocator.allocate(4_KiB), Iova{0x2000});
    EXPECT_EQ(*allocator.allocate(4_KiB), Iova{0});
    EXPECT_TRUE(allocator.free(Iova{0}, 4_KiB));
    auto whole = make({range(0, 0x2fff)});
    EXPECT_EQ(*whole.allocate(12_KiB), Iova{0});
}

TEST(IovaAllocator, FullSaysHowMuchIsLeft) {
    auto allocator = make({range(0x1000, 0x3fff), range(0x8000, 0x8fff)});
    const auto refused = allocator.allocate(16_KiB);
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().is(ENOSPC));
    EXPECT_THAT(refused.error().hint, HasSubstr("0x3000"));
    EXPECT_EQ(allocator.allocation_count(), 0U);
}

TEST(IovaAllocator, MisuseIsAnError) {
    auto allocator = make({range(0x1000, 0xffff)});
    ASSERT_TRUE(allocator.reserve(Iova{0x4000}, 8_KiB));
    EXPECT_TRUE(allocator.reserve(Iova{0x4000}, 8_KiB).error().is(EEXIST));
    EXPECT_TRUE(allocator.reserve(Iova{0x5000}, 8_KiB).error().is(EEXIST));
    EXPECT_TRUE(allocator.reserve(Iova{0x3000}, 16_KiB).error().is(EEXIST)); // encloses it
    EXPECT_TRUE(allocator.free(Iova{0x4000}, 4_KiB).error().is(ENOENT));
    EXPECT_TRUE(allocator.free(Iova{0x5000}, 4_KiB).error().is(ENOENT));
    EXPECT_TRUE(allocator.free(Iova{0x4000}, 0_B).error().is(ENOENT));
    EXPECT_TRUE(allocator.free(Iova{0x4000}, 8_KiB));
    EXPECT_TRUE(allocator.free(Iova{0x4000}, 8_KiB).error().is(ENOENT));
    EXPECT_THAT(allocator.free_ranges(), ElementsAre(range(0x1000, 0xffff)));
}

TEST(IovaAllocator, RangesAreSortedMergedAndCutToGranules) {
    const auto allocator = make({range(0x9800, 0xbfff), range(0x1001, 0x2fff), range(0x3000, 0x5ffe)});
    EXPECT_THAT(allocator.ranges(), ElementsAre(range(0x2000, 0x4fff), range(0xa000, 0xbfff)));
    EXPECT_EQ(allocator.granule(), 4_KiB);
}

TEST(IovaAllocator, RefusesRangesThatMakeNoSense) {
    const auto code = [](const std::vector<IovaRange>& ranges, ByteCount granule) {
        const auto made = IovaAllocator::create(ranges, granule);
        return made ? 0 : made.error().code;
    };
    EXPECT_EQ(code({range(0x2000, 0x1fff)}, 4_KiB), EINVAL);
    EXPECT_EQ(code({range(0x1000, 0x3fff), range(0x3000, 0x4fff)}, 4_KiB), EINVAL);
    EXPECT_EQ(code({range(0x1000, 0x3fff)}, 0_B), EINVAL);
    EXPECT_EQ(code({range(0x1000, 0x3fff)}, 4097_B), EINVAL);
    EXPECT_EQ(code({}, 4_KiB), ENOSPC);
    EXPECT_EQ(code({range(0x1001, 0x1fff)}, 4_KiB), ENOSPC);
    EXPECT_EQ(code({range(0, 0xffe)}, 4_KiB), ENOSPC);
    EXPECT_EQ(code({range(~0ULL, ~0ULL)}, 4_KiB), ENOSPC);
    EXPECT_EQ(code({range(0x1000, 0x1fff)}, 4_KiB), 0);
}

TEST(IovaAllocator, SubsetsNeverMeet) {
    auto all = make({range(0x1000, 0xfffff)});
    auto one = all.subset(64_KiB, 64_KiB);
    auto two = all.subset(64_KiB, 64_KiB);
    ASSERT_TRUE(one && two);
    EXPECT_THAT(one->ranges(), ElementsAre(range(0x10000, 0x1ffff)));
    EXPECT_THAT(two->ranges(), ElementsAre(range(0x20000, 0x2ffff)));
    EXPECT_EQ(*one->allocate(64_KiB), Iova{0x10000});
    EXPECT_TRUE(one->allocate(4_KiB).error().is(ENOSPC));
    EXPECT_TRUE(all.reserve(Iova{0x10000}, 4_KiB).error().is(EEXIST));
    EXPECT_TRUE(all.free(Iova{0x10000}, 64_KiB));
    EXPECT_TRUE(all.subset(0_B).error().is(EINVAL));
}

/// The naive model: one flag a granule.
class Model {
  public:
    explicit Model(const std::vector<IovaRange>& ranges) {
        for (const auto& r : ranges) {
            for (std::uint64_t page = r.first.value() / 4096; page <= r.last.value() / 4096; ++page) {
                pages_[page] = false;
            }
        }
    }
    bool all(std::uint64_t first, std::uint64_t count, bool used) const {
        for (std::uint64_t page = first; page < first + count; ++page) {
            const auto found = pages_.find(page);
            if (found == pages_.end() || found->second != used) {
                return false;
            }
        }
        return true;
    }
    bool known(std::uint64_t first, std::uint64_t count) const {
        return all(first, count, true) || all(first, count, false) || [&] {
            for (std::uint64_t page = first; page < first + count; ++page) {
                if (pages_.count(page) == 0) {
                    return false;
                }
            }
            return true;
        }();
    }
    void set(std::uint64_t first, std::uint64_t count, bool used) {
        for (std::uint64_t page = first; page < first + count; ++page) {
            pages_[page] = used;
        }
    }
    std::optional<std::uint64_t> first_fit(std::uint64_t count, std::uint64_t alignment) const {
        std::optional<std::uint64_t> zero;
        for (const auto& [page, used] : pages_) {
            if (page % alignment == 0 && !used && all(page, count, false)) {
                if (page != 0) {
                    return page;
                }
                zero = page;
            }
        }
        return zero;
    }
    std::vector<IovaRange> free_ranges() const {
        std::vector<IovaRange> result;
        for (const auto& [page, used] : pages_) {
            if (used) {
                continue;
            }
            if (!result.empty() && result.back().last.value() + 1 == page * 4096) {
                result.back().last = Iova{page * 4096 + 4095};
            } else {
                result.push_back(range(page * 4096, page * 4096 + 4095));
            }
        }
        return result;
    }

  private:
    std::map<std::uint64_t, bool> pages_;
};

TEST(IovaAllocator, AgreesWithANaiveModel) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        std::mt19937_64 random{seed};
        const auto upto = [&](std::uint64_t n) { return random() % n; };
        const std::vector<IovaRange> ranges{range(0, 0x1ffff), range(0x28000, 0x3ffff), range(0x40000, 0x5ffff)};
        auto allocator = make(ranges);
        Model model{ranges};
        std::vector<std::pair<std::uint64_t, std::uint64_t>> live;
        for (int step = 0; step < 2000; ++step) {
            const std::uint64_t count = 1 + upto(10);
            switch (upto(3)) {
            case 0: {
                const std::uint64_t alignment = 1ULL << upto(5);
                const auto expected = model.first_fit(count, alignment);
                const auto got = allocator.allocate(ByteCount{count * 4096}, ByteCount{alignment * 4096});
                ASSERT_EQ(got.has_value(), expected.has_value()) << "seed " << seed << " step " << step;
                if (got) {
                    ASSERT_EQ(got->value(), *expected * 4096) << "seed " << seed << " step " << step;
                    model.set(*expected, count, true);
                    live.emplace_back(*expected, count);
                }
                break;
            }
            case 1: {
                const std::uint64_t page = upto(0x64);
                const auto got = allocator.reserve(Iova{page * 4096}, ByteCount{count * 4096});
                const bool expected = model.all(page, count, false);
                ASSERT_EQ(got.has_value(), expected) << "seed " << seed << " step " << step;
                if (got) {
                    model.set(page, count, true);
                    live.emplace_back(page, count);
                } else {
                    ASSERT_EQ(got.error().code, model.known(page, count) ? EEXIST : EINVAL);
                }
                break;
            }
            default:
                if (!live.empty()) {
                    const std::size_t victim = upto(live.size());
                    const auto [page, pages] = live[victim];
                    ASSERT_TRUE(allocator.free(Iova{page * 4096}, ByteCount{(pages + 1) * 4096}).error().is(ENOENT));
                    ASSERT_TRUE(allocator.free(Iova{page * 4096}, ByteCount{pages * 4096}));
                    model.set(page, pages, false);
                    live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
                }
            }
            ASSERT_EQ(allocator.allocation_count(), live.size());
            ASSERT_EQ(allocator.free_ranges(), model.free_ranges()) << "seed " << seed << " step " << step;
        }
    }
}

} // namespace
} // namespace upcie::iommu
