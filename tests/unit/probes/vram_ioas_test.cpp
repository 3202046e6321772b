// SPDX-License-Identifier: BSD-3-Clause
// The verdicts of upcie_probe_vram_ioas_*, over the stub GPU and a kernel that answers as it is told.
#include <cerrno>

#include <gtest/gtest.h>

#include <upcie/gpu/flavour.hpp>
#include <upcie/gpu/stub.hpp>

#include "fake_kernel.hpp"
#include "gpu/vram_ioas.hpp"

namespace upcie::probes {
namespace {

using gpu::stub::Stub;
using test::FakeKernel;
using Kind = FakeKernel::Kind;

class VramIoas : public testing::Test {
  protected:
    enum class With : std::uint8_t { nothing, iommu, noiommu };

    const Report& ask(With with, gpu::stub::Options options = {}) {
        options.udmabuf_node.clear();
        gpu::FlavourRuntime<Stub> runtime{Stub::create(os::real_system(), std::move(options)).value()};
        const Requests requests{kernel_};
        const pci::FunctionInfo function = FakeKernel::function(with == With::noiommu);
        const pci::FunctionInfo* const named = with == With::nothing ? nullptr : &function;
        const auto session = open_ioas(requests, named);
        EXPECT_TRUE(session) << session.error().message();
        const auto asked = ask_vram_ioas(report_, requests, *session, named, runtime);
        EXPECT_TRUE(asked) << asked.error().message();
        EXPECT_EQ(report_.exit_status(), 0);
        EXPECT_EQ(kernel_.still_mapped(), 0) << "every mapping is taken away again";
        return report_;
    }
    [[nodiscard]] Answer answer(const std::string& topic) const {
        for (const Answer& one : report_.judged()) {
            if (one.topic == topic) {
                return one;
            }
        }
        return {topic, "no such topic", {}, true, {}};
    }
    [[nodiscard]] std::string word(const std::string& topic) const { return answer(topic).answer; }
    [[nodiscard]] Value value(const char* name) const {
        const Observation* const found = report_.find(name);
        return found == nullptr ? Value{"not there"} : found->value;
    }

    FakeKernel kernel_;
    Report report_{"vram_ioas_stub", vram_ioas_question};
};

/// Linux 7.3 and the GPUs that were asked so far.
TEST_F(VramIoas, AKernelThatTakesVfiosDmaBufsAloneIsToldFromOneThatTakesNone) {
    ask(With::iommu);
    EXPECT_EQ(word("map_file"), "refused");
    EXPECT_NE(answer("map_file").sentence.find("EOPNOTSUPP"), std::string::npos);
    EXPECT_EQ(word("exporters"), "vfio_only");
    EXPECT_EQ(word("map_address"), "refused");
    EXPECT_EQ(word("get_pa"), "not_tried");
    EXPECT_EQ(word("peer_dma"), "impossible");
    EXPECT_EQ(value("gpu.whole.map_file"), "EOPNOTSUPP");
    EXPECT_EQ(value("gpu.part.map_file"), "EOPNOTSUPP");
    EXPECT_EQ(value("gpu.part_at_2m.map_file"), "EOPNOTSUPP");
    EXPECT_EQ(value("gpu.slice.map_file"), "EOPNOTSUPP");
    EXPECT_EQ(value("gpu.whole.map_by_address"), "EFAULT");
    EXPECT_EQ(value("udmabuf.map_file"), "EOPNOTSUPP");
    EXPECT_EQ(value("vfio.map_file"), "ok");
    EXPECT_EQ(value("vfio.unmap"), "ok");
    EXPECT_EQ(value("control.the_export_is_a_dma_buf"), "nv_dmabuf");
}

TEST_F(VramIoas, WithoutADeviceThereIsNothingToCompareWith) {
    ask(With::nothing);
    EXPECT_EQ(word("map_file"), "refused");
    EXPECT_EQ(word("exporters"), "not_compared");
    EXPECT_EQ(word("map_address"), "not_tried") << "before a device is attached any address is taken";
    EXPECT_EQ(word("peer_dma"), "impossible");
    EXPECT_EQ(value("ioas.device_attached"), false);
    EXPECT_TRUE(kernel_.exported_regions.empty());
}

TEST_F(VramIoas, AKernelWithoutExportsOfBarsComparesNothing) {
    kernel_.export_bar = ENOTTY;
    ask(With::iommu);
    EXPECT_EQ(value("vfio.export"), "ENOTTY");
    EXPECT_EQ(word("exporters"), "not_compared");
    EXPECT_EQ(word("map_file"), "refused");
}

TEST_F(VramIoas, WhereVfiosDmaBufsAreRefusedTooNothingIsSaidOfExporters) {
    kernel_.map_file[Kind::bar] = EOPNOTSUPP;
    ask(With::iommu);
    EXPECT_EQ(word("exporters"), "inconclusive");
    EXPECT_EQ(answer("exporters").failed_controls, std::vector<std::string>{"control.map_file_of_a_vfio_dma_buf"});
    EXPECT_EQ(word("map_file"), "refused") << "which is so for whatever reason";
}

TEST_F(VramIoas, AcceptedIsPeerDma) {
    kernel_.map_file[Kind::gpu] = 0;
    ask(With::iommu);
    EXPECT_EQ(word("map_file"), "accepted");
    EXPECT_EQ(word("exporters"), "gpu_too");
    EXPECT_EQ(word("peer_dma"), "possible");
    EXPECT_EQ(value("gpu.whole.unmap"), "ok");
    EXPECT_EQ(value("gpu.whole.unmapped"), 4 << 20);
    EXPECT_EQ(value("gpu.past_its_end.map_file"), "EINVAL");
}

TEST_F(VramIoas, PartsThatAreRefusedAreTold) {
    kernel_.map_file[Kind::gpu] = 0;
    kernel_.map_part = EINVAL;
    ask(With::iommu);
    EXPECT_EQ(word("map_file"), "partly");
    EXPECT_NE(answer("map_file").sentence.find("EINVAL"), std::string::npos);
}

TEST_F(VramIoas, AnAddressOfTheCpuIsAWayToo) {
    kernel_.map_address = 0;
    ask(With::iommu);
    EXPECT_EQ(word("map_file"), "refused");
    EXPECT_EQ(word("map_address"), "accepted");
    EXPECT_EQ(word("peer_dma"), "possible");
}

TEST_F(VramIoas, WithoutAnIommuAnAddressHasToBeTold) {
    ask(With::noiommu);
    EXPECT_EQ(word("get_pa"), "not_mapped");
    EXPECT_EQ(word("peer_dma"), "impossible");
    EXPECT_EQ(value("vfio.get_pa_address"), "0xfe200000");
}

TEST_F(VramIoas, WithoutAnIommuAToldAddressIsPeerDma) {
    kernel_.map_file[Kind::gpu] = 0;
    ask(With::noiommu);
    EXPECT_EQ(word("get_pa"), "answered");
    EXPECT_EQ(word("peer_dma"), "possible");
    EXPECT_EQ(value("gpu.whole.get_pa_covered"), 4 << 20);
}

TEST_F(VramIoas, WithoutAnIommuAMappingAloneIsNotEnough) {
    kernel_.map_file[Kind::gpu] = 0;
    kernel_.get_pa[Kind::gpu] = EOPNOTSUPP;
    ask(With::noiommu);
    EXPECT_EQ(word("map_file"), "accepted");
    EXPECT_EQ(word("get_pa"), "refused");
    EXPECT_EQ(word("peer_dma"), "impossible");
}

TEST_F(VramIoas, AnAddressOfTheFirstPageIsNoAddressOfAll) {
    kernel_.map_file[Kind::gpu] = 0;
    kernel_.get_pa_stops_half_way = true;
    ask(With::noiommu);
    EXPECT_EQ(word("get_pa"), "refused");
    EXPECT_EQ(value("gpu.whole.get_pa_covered"), 4096);
}

TEST_F(VramIoas, GetPaThatTellsNothingOfAMemfdSaysNothingOfAGpu) {
    kernel_.map_file[Kind::gpu] = 0;
    for (const auto& [code, words] : {std::pair{ENOTTY, "Linux 7.3"}, std::pair{EPERM, "CAP_SYS_RAWIO"}}) {
        kernel_.get_pa[Kind::memfd] = code;
        kernel_.get_pa[Kind::gpu] = code;
        report_ = Report{"vram_ioas_stub", vram_ioas_question};
        ask(With::noiommu);
        EXPECT_EQ(word("get_pa"), "inconclusive");
        EXPECT_NE(report_.find("control.get_pa_of_a_memfd")->note.find(words), std::string::npos);
        EXPECT_EQ(word("map_file"), "accepted") << "that control is about GET_PA alone";
    }
}

TEST_F(VramIoas, WithoutMapFileNothingIsConcluded) {
    for (const auto& [code, words] : {std::pair{ENOTTY, "6.13"}, std::pair{ENOMEM, "about the other file"}}) {
        kernel_.map_file[Kind::memfd] = code;
        report_ = Report{"vram_ioas_stub", vram_ioas_question};
        ask(With::nothing);
        EXPECT_NE(report_.find("control.map_file_of_a_memfd")->note.find(words), std::string::npos);
        for (const Answer& one : report_.judged()) {
            EXPECT_EQ(one.answer, "inconclusive") << one.topic;
        }
    }
}

TEST_F(VramIoas, AKernelThatMapsWhatIsNoFileIsNotBelieved) {
    kernel_.no_file_is_taken = true;
    ask(With::nothing);
    EXPECT_EQ(answer("map_file").failed_controls, std::vector<std::string>{"control.map_file_of_no_file"});
}

TEST_F(VramIoas, WhatIsNoDmaBufSaysNothing) {
    kernel_.exporter.clear();
    kernel_.map_file[Kind::gpu] = 0; // as the kernel takes the memfd that the stub gives without udmabuf
    ask(With::iommu);
    EXPECT_EQ(word("map_file"), "inconclusive");
    EXPECT_EQ(word("peer_dma"), "inconclusive");
    EXPECT_EQ(answer("peer_dma").failed_controls, std::vector<std::string>{"control.the_export_is_a_dma_buf"});
}

TEST_F(VramIoas, AGpuThatExportsNothingSaysNothing) {
    gpu::stub::Options options;
    options.exports_refused = true;
    ask(With::iommu, std::move(options));
    EXPECT_EQ(word("map_file"), "inconclusive");
    EXPECT_EQ(value("control.gpu_memory_is_exported"), "EOPNOTSUPP");
}

TEST_F(VramIoas, WithoutUdmabufThatComparisonIsNotSeen) {
    kernel_.open_udmabuf = EACCES;
    ask(With::iommu);
    EXPECT_TRUE(value("udmabuf.map_file").is_null());
    EXPECT_EQ(word("map_file"), "refused");
}

TEST_F(VramIoas, AGpuWithoutMemoryCannotBeAsked) {
    gpu::stub::Options options;
    options.udmabuf_node.clear();
    options.memory = ByteCount{std::uint64_t{2} << 20};
    gpu::FlavourRuntime<Stub> runtime{Stub::create(os::real_system(), std::move(options)).value()};
    const Requests requests{kernel_};
    const auto session = open_ioas(requests, nullptr);
    ASSERT_TRUE(session);
    const auto asked = ask_vram_ioas(report_, requests, *session, nullptr, runtime);
    ASSERT_FALSE(asked);
    EXPECT_EQ(asked.error().code, ENOMEM);
}

TEST_F(VramIoas, WithoutAnIommufdItSaysWhatWouldHelp) {
    const Requests requests{kernel_};
    kernel_.open_iommufd = ENOENT;
    EXPECT_NE(open_ioas(requests, nullptr).error().hint.find("CONFIG_IOMMUFD"), std::string::npos);
    kernel_.open_iommufd = EACCES;
    EXPECT_NE(open_ioas(requests, nullptr).error().hint.find("read and write access"), std::string::npos);
    kernel_.open_iommufd = 0;
    kernel_.bind = EBUSY;
    const pci::FunctionInfo function = FakeKernel::function();
    EXPECT_EQ(open_ioas(requests, &function).error().code, EBUSY);
}

} // namespace
} // namespace upcie::probes
