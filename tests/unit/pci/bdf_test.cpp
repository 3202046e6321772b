// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/pci/bdf.hpp>

#include <cerrno>

#include <gtest/gtest.h>

namespace upcie::pci {
namespace {

TEST(Bdf, ParsesWhatSysfsWrites) {
    const auto bdf = Bdf::parse("0000:01:00.0");
    ASSERT_TRUE(bdf);
    EXPECT_EQ(*bdf, (Bdf{0, 1, 0, 0}));
    EXPECT_EQ(*Bdf::parse("0a1b:fe:1f.7"), (Bdf{0xa1b, 0xfe, 0x1f, 7}));
}

TEST(Bdf, ParsesTheFiveDigitDomainsOfVmd) {
    const auto bdf = Bdf::parse("10000:e1:00.0");
    ASSERT_TRUE(bdf);
    EXPECT_EQ(bdf->domain, 0x10000U);
    EXPECT_EQ(bdf->bus, 0xe1);
    EXPECT_EQ(Bdf::parse("ffffffff:00:00.0")->domain, 0xffffffffU);
}

TEST(Bdf, TheDomainMayBeLeftOut) {
    EXPECT_EQ(*Bdf::parse("c1:02.3"), (Bdf{0, 0xc1, 2, 3}));
}

TEST(Bdf, WritesBackWhatItRead) {
    for (const char* text : {"0000:01:00.0", "10000:e1:00.0", "abcd:ff:1f.7"}) {
        EXPECT_EQ(Bdf::parse(text)->to_string(), text);
    }
    EXPECT_EQ(Bdf::parse("01:00.0")->to_string(), "0000:01:00.0");
}

TEST(Bdf, RefusesEverythingElse) {
    for (const char* text : {"",
                             "01",
                             "01:00",
                             "0000:01:00",
                             "0000:01:00.8",
                             "0000:01:20.0",
                             "0000:01:00.0 ",
                             " 0000:01:00.0",
                             "000:01:00.0",
                             "123456789:01:00.0",
                             "0000:1:00.0",
                             "0000:01:0.0",
                             "0000:001:00.0",
                             "0000:01:00.00",
                             "0x00:01:00.0",
                             "-001:01:00.0",
                             "0000:01:00.0\n",
                             "0000:01:00.g",
                             ":01:00.0",
                             "0000::01:00.0",
                             "sim:",
                             "."}) {
        const auto bdf = Bdf::parse(text);
        ASSERT_FALSE(bdf) << text;
        EXPECT_TRUE(bdf.error().is(EINVAL));
        EXPECT_NE(bdf.error().message().find(text), std::string::npos);
    }
}

TEST(Bdf, OrdersAsTheBusIsWalked) {
    EXPECT_LT((Bdf{0, 1, 0, 0}), (Bdf{0, 1, 0, 1}));
    EXPECT_LT((Bdf{0, 9, 0, 0}), (Bdf{1, 0, 0, 0}));
}

} // namespace
} // namespace upcie::pci
