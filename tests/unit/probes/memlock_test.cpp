// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memlock.hpp"
#include "support/mock_system.hpp"

namespace upcie::probes {
namespace {

using testing::_;

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

FillFacts facts_of(std::uint64_t accepted, int error) {
    FillFacts facts;
    facts.accepted = accepted;
    facts.error = error;
    facts.primary_limit = 8 * mib;
    facts.secondary_limit = 16 * mib;
    return facts;
}

TEST(LimitedBy, NamesTheSideWhoseLimitWasReached) {
    EXPECT_EQ(limited_by(facts_of(8 * mib, ENOMEM)), "primary");
    EXPECT_EQ(limited_by(facts_of(16 * mib, ENOMEM)), "secondary");
    EXPECT_EQ(limited_by(facts_of(15 * mib, ENOMEM)), "secondary") << "a chunk of slack";
}

TEST(LimitedBy, NoRefusalIsNoLimit) {
    EXPECT_EQ(limited_by(facts_of(32 * mib, 0)), "none");
    EXPECT_EQ(limited_by(facts_of(8 * mib, 0)), "none");
}

TEST(LimitedBy, WhatFitsNeitherIsNotForced) {
    EXPECT_EQ(limited_by(facts_of(12 * mib, ENOMEM)), "other");
    EXPECT_EQ(limited_by(facts_of(9 * mib, ENOMEM)), "other") << "above the primary's limit, far from the secondary's";
    EXPECT_EQ(limited_by(facts_of(8 * mib, EFAULT)), "other") << "another errno is no limit";
    FillFacts unlimited = facts_of(8 * mib, ENOMEM);
    unlimited.primary_limit.reset();
    EXPECT_EQ(limited_by(unlimited), "other");
}

TEST(LimitedBy, LimitsTooCloseToTellAreSaidToBe) {
    FillFacts facts = facts_of(8 * mib, ENOMEM);
    facts.secondary_limit = 8 * mib + 4096;
    EXPECT_EQ(limited_by(facts), "either");
}

TEST(LimitedBy, WhatStoodBeforeCounts) {
    FillFacts facts = facts_of(12 * mib, ENOMEM);
    facts.standing = 4 * mib;
    EXPECT_EQ(limited_by(facts), "secondary");
}

TEST(PinnedOn, SaysWhoseNumberGrew) {
    FillFacts facts = facts_of(4 * mib, 0);
    EXPECT_EQ(pinned_on(facts), "none");
    facts.secondary_before.pinned = mib;
    facts.secondary_during.pinned = 5 * mib;
    EXPECT_EQ(pinned_on(facts), "secondary");
    EXPECT_EQ(locked_on(facts), "none");
    facts.primary_during.pinned = 4 * mib;
    EXPECT_EQ(pinned_on(facts), "both");
    facts.secondary_during.pinned = mib;
    EXPECT_EQ(pinned_on(facts), "primary");
    facts.primary_during.locked = 4096;
    EXPECT_EQ(locked_on(facts), "none") << "a page is not four mebibytes";
}

TEST(PinnedOn, NothingAcceptedIsNobodys) {
    FillFacts facts = facts_of(0, ENOMEM);
    facts.primary_during.pinned = 4096;
    EXPECT_EQ(pinned_on(facts), "none");
}

TEST(Filling, StopsAtTheFirstRefusalAndUnmapsWhatWasTaken) {
    testing::NiceMock<test::MockSystemBase> system;
    const Requests requests{system};
    unsigned mapped = 0;
    unsigned unmapped = 0;
    ON_CALL(system, ioctl(_, _, _)).WillByDefault([&](int, unsigned long request, void* argument) {
        if (request == uapi::iommu_ioas_map_file) {
            auto* const map = static_cast<uapi::IommuIoasMapFile*>(argument);
            EXPECT_EQ(map->start, mapped * fill_chunk);
            EXPECT_EQ(map->length, fill_chunk);
            if (mapped == 3) {
                errno = ENOMEM;
                return -1;
            }
            map->iova = 0x1000 + ++mapped;
            return 0;
        }
        EXPECT_EQ(request, uapi::iommu_ioas_unmap);
        EXPECT_EQ(static_cast<uapi::IommuIoasUnmap*>(argument)->iova, 0x1000U + ++unmapped);
        return 0;
    });
    {
        Filling filling{requests, 3, 1};
        filling.fill({}, Way::by_file, 8 * fill_chunk);
        EXPECT_EQ(filling.accepted(), 3 * fill_chunk);
        EXPECT_EQ(filling.error(), ENOMEM);
    }
    EXPECT_EQ(unmapped, 3U);
}

TEST(Account, TravelsAndRefusesWhatIsNone) {
    const Result<Account> back = Account::of(Account{1, 2}.json());
    ASSERT_TRUE(back);
    EXPECT_EQ(back->locked, 1U);
    EXPECT_EQ(back->pinned, 2U);
    EXPECT_TRUE(Account::of({{"locked", 1}}).error().is(EPROTO));
    EXPECT_TRUE(Account::of(nullptr).error().is(EPROTO));
}

} // namespace
} // namespace upcie::probes
