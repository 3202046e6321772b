// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <gtest/gtest.h>
#include <upcie/rm/vocabulary.hpp>

namespace upcie::rm::test {
namespace {

constexpr DriverVersion v535{535, 261, 3};
constexpr DriverVersion v550{550, 163, 1};
constexpr DriverVersion v555{555, 58, 2};
constexpr DriverVersion v570{570, 124, 6};
constexpr DriverVersion v580{580, 159, 4};
constexpr DriverVersion v595{595, 71, 5};

std::uint32_t size_of(const ParameterSize& size, DriverVersion version) {
    const auto at = size.at(version);
    return at ? at->bytes : 0;
}

TEST(RmDriverVersion, IsReadAndWritten) {
    EXPECT_EQ(parse_driver_version("580.159.04").value(), v580);
    EXPECT_EQ(v580.text(), "580.159.04");
    EXPECT_EQ(parse_driver_version("550").value(), (DriverVersion{550, 0, 0}));
    EXPECT_EQ(DriverVersion{}.text(), "unknown");
    EXPECT_LT(v535, v580);
    for (const char* bad : {"", "x", "580.", "580.159.04.1", "580.159.04 ", "-1", "99999999", "0.1"}) {
        EXPECT_FALSE(parse_driver_version(bad)) << bad;
    }
}

// The sizes of the facts page, in the order 535, 550, 555, 570, 580, 595.
TEST(RmVocabulary, SizesThatChangedFollowTheDriver) {
    struct Row {
        std::uint32_t command;
        std::uint32_t sizes[6];
    };
    constexpr Row rows[] = {{0x800292, {644, 700, 404, 404, 804, 804}},
                            {0x20800102, {516, 524, 524, 524, 564, 564}},
                            {0x20801303, {436, 444, 444, 460, 1028, 1028}},
                            {0x20800170, {252, 260, 260, 340, 340, 340}},
                            {0x2080121b, {6168, 6168, 6168, 6168, 9240, 9240}}};
    constexpr DriverVersion versions[] = {v535, v550, v555, v570, v580, v595};
    for (const Row& row : rows) {
        for (std::size_t i = 0; i < 6; ++i) {
            const Control* control = find_control(row.command, versions[i]);
            ASSERT_NE(control, nullptr) << row.command;
            EXPECT_EQ(size_of(control->size, versions[i]), row.sizes[i]) << control->name << " " << versions[i].text();
            EXPECT_TRUE(control->size.certain_at(versions[i].branch)) << control->name << " " << versions[i].text();
        }
    }
    EXPECT_EQ(size_of(find_class(0x40)->allocation, v535), 120U);
    EXPECT_EQ(size_of(find_class(0x40)->allocation, v550), 128U);
    EXPECT_EQ(size_of(find_class(0xc86f)->allocation, v555), 360U);
    EXPECT_EQ(size_of(find_class(0xc86f)->allocation, v570), 368U);
    EXPECT_EQ(size_of(find_class(0x90f1)->allocation, v570), 48U);
    EXPECT_EQ(size_of(find_class(0x90f1)->allocation, v580), 56U);
    EXPECT_EQ(size_of(find_escape(0x57)->size, v570), 56U);
    EXPECT_EQ(size_of(find_escape(0x57)->size, v580), 64U);
    EXPECT_EQ(size_of(find_escape(0x58)->size, v535), 40U);
    EXPECT_EQ(size_of(find_escape(0x58)->size, v550), 48U);
    EXPECT_EQ(size_of(find_escape(217)->size, v580), 2608U);
    EXPECT_EQ(size_of(find_uvm_command(33)->size, v535), 1200U);
    EXPECT_EQ(size_of(find_uvm_command(33)->size, v550), 9264U);
    EXPECT_EQ(size_of(find_uvm_command(34)->size, v580), 24U);
    EXPECT_EQ(size_of(find_uvm_command(34)->size, v595), 16U);
}

TEST(RmVocabulary, NamesTheFactsPage) {
    EXPECT_EQ(find_escape(0x2a)->name, "RM_CONTROL");
    EXPECT_EQ(find_escape(200)->size.at(v580)->bytes, 2304U);
    EXPECT_EQ(find_escape(211)->name, "IOCTL_XFER_CMD");
    EXPECT_EQ(find_class(0x40)->name, "NV01_MEMORY_LOCAL_USER");
    EXPECT_EQ(find_class(0x40)->role, ClassRole::memory);
    EXPECT_EQ(find_class(0x9067)->role, ClassRole::context_share);
    EXPECT_EQ(find_class(0xc5b5)->role, ClassRole::copy);
    EXPECT_EQ(find_class(0xcb33)->name, "NV_CONFIDENTIAL_COMPUTE");
    EXPECT_EQ(find_control(0x800289)->name, "NV0080_CTRL_CMD_GPU_GET_VIRTUALIZATION_MODE");
    EXPECT_EQ(find_control(0x27b)->name, "NV0000_CTRL_CMD_GPU_GET_MEMOP_ENABLE");
    EXPECT_EQ(find_control(0x3d05)->name, "NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD");
    EXPECT_EQ(find_uvm_command(0x30000001)->name, "INITIALIZE");
    EXPECT_EQ(find_uvm_command(73)->name, "CREATE_EXTERNAL_RANGE");
    EXPECT_EQ(find_status(0x56)->name, "NV_ERR_NOT_SUPPORTED");
    EXPECT_EQ(describe_status(0x12345), "status 0x12345");
}

TEST(RmVocabulary, UnknownStaysUnknown) {
    EXPECT_EQ(find_escape(0x99), nullptr);
    EXPECT_EQ(find_class(0xffff), nullptr);
    EXPECT_EQ(find_control(0xffffffff), nullptr);
    EXPECT_EQ(find_uvm_command(0x77777777), nullptr);
    EXPECT_EQ(find_status(0xdead), nullptr);
    EXPECT_TRUE(is_legacy_control(0x2080a1ff));
    EXPECT_FALSE(is_legacy_control(0x20800170));
}

// What lies beyond the trees that were read is an assumption and says so.
TEST(RmVocabulary, SaysWhatIsAssumed) {
    const Control* control = find_control(0x20800142);
    ASSERT_NE(control, nullptr);
    EXPECT_TRUE(control->size.at(v550)->certain); // 535 and 555 agree
    EXPECT_FALSE(control->size.at(v580)->certain);
    EXPECT_EQ(find_class(0xc96f)->allocation.at(v550), std::nullopt); // Blackwell is not in the headers of 550
    EXPECT_FALSE(ParameterSize{}.known());
    EXPECT_EQ(ParameterSize{}.at(v580), std::nullopt);
}

TEST(RmVocabulary, TheElevenConsumedControlsAreNamed) {
    EXPECT_EQ(consumed_controls().size(), 12U); // one of the eleven has two spellings
    for (const ConsumedControl& consumed : consumed_controls()) {
        EXPECT_NE(find_control(consumed.command), nullptr) << consumed.command;
    }
    EXPECT_EQ(find_consumed_control(0x800289), nullptr);
}

TEST(RmNode, IsToldByItsPath) {
    EXPECT_EQ(node_of_path("/dev/nvidiactl"), Node::control);
    EXPECT_EQ(node_of_path("/dev/nvidia0"), Node::gpu);
    EXPECT_EQ(node_of_path("/dev/nvidia15"), Node::gpu);
    EXPECT_EQ(node_of_path("/dev/nvidia-uvm"), Node::uvm);
    EXPECT_EQ(node_of_path("/dev/nvidia-uvm-tools"), Node::uvm_tools);
    EXPECT_EQ(node_of_path("/dev/nvidia-caps/nvidia-cap1"), Node::capabilities);
    EXPECT_EQ(node_of_path("/dev/nvidia"), std::nullopt);
    EXPECT_EQ(node_of_path("/dev/null"), std::nullopt);
}

TEST(RmVocabulary, IsLarge) {
    EXPECT_GE(classes().size(), 240U);
    EXPECT_GE(controls().size(), 1500U);
    EXPECT_GE(uvm_commands().size(), 70U);
    EXPECT_GE(statuses().size(), 130U);
    EXPECT_GE(escapes().size(), 40U);
}

} // namespace
} // namespace upcie::rm::test
