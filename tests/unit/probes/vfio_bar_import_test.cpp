// SPDX-License-Identifier: BSD-3-Clause
// The verdicts of upcie_probe_vfio_bar_import_*, over a GPU that takes what it is told to and a kernel likewise.
#include <cerrno>
#include <map>
#include <optional>
#include <set>

#include <gtest/gtest.h>

#include <upcie/gpu/flavour.hpp>
#include <upcie/gpu/stub.hpp>

#include "fake_kernel.hpp"
#include "gpu/vfio_bar_import.hpp"

namespace upcie::probes {
namespace {

using gpu::ExternalHandle;
using gpu::stub::Stub;
using test::FakeKernel;

constexpr std::uint64_t cap = 0x0102030405060708;

Error vendor(int code, const char* name) {
    Error error;
    error.domain = ErrorDomain::vendor;
    error.code = code;
    error.operation = "import";
    error.code_name = name;
    return error;
}
Error of_kernel(int code) {
    return fail(code, "import", "memory", "").value();
}

/// The stub GPU, whose imports answer as a test says: its own memory and a BAR apart.
class ScriptedGpu final : public ProbedGpu {
  public:
    explicit ScriptedGpu(os::System& system) : runtime_{make(system)} {
        for (const ExternalHandle kind :
             {ExternalHandle::dma_buf_fd, ExternalHandle::opaque_fd, ExternalHandle::shareable_handle}) {
            own[kind] = bar[kind] = of_kernel(ENOTSUP);
        }
    }

    std::map<ExternalHandle, std::optional<Error>> own; ///< nothing: taken
    std::map<ExternalHandle, std::optional<Error>> bar;
    std::optional<Error> export_error; ///< of every kind
    std::optional<Error> read_error;
    std::uint64_t value = cap;
    ReadBy way = ReadBy::kernel;
    std::set<std::uint64_t> live;
    ByteCount bar_length;

    [[nodiscard]] gpu::Runtime& runtime() override { return runtime_; }
    [[nodiscard]] Value describe() const override { return {}; }
    [[nodiscard]] Result<std::uint64_t> read(DevicePointer) override {
        if (read_error) {
            return tl::unexpected{*read_error};
        }
        return value;
    }
    [[nodiscard]] ReadBy read_by() const override { return way; }
    [[nodiscard]] Result<DevicePointer> import_external(ExternalHandle kind, int fd, ByteCount length) override {
        const bool is_own = fd == own_fd_;
        const std::optional<Error>& error = is_own ? own.at(kind) : bar.at(kind);
        bar_length = is_own ? bar_length : length;
        if (error) {
            return tl::unexpected{*error};
        }
        live.insert(++last_);
        return DevicePointer{last_};
    }
    Result<void> release_external(DevicePointer base) override {
        EXPECT_EQ(live.erase(base.value()), 1U);
        return {};
    }
    [[nodiscard]] Result<os::Fd> export_own(ExternalHandle, ByteCount length) override {
        if (export_error) {
            return tl::unexpected{*export_error};
        }
        const auto base = runtime_.allocate(length);
        os::Fd fd = std::move(runtime_.export_range(*base, length)->fd);
        own_fd_ = fd.get();
        return fd;
    }

  private:
    static Stub make(os::System& system) {
        gpu::stub::Options options;
        options.udmabuf_node.clear();
        return Stub::create(system, std::move(options)).value();
    }
    gpu::FlavourRuntime<Stub> runtime_;
    int own_fd_ = -1;
    std::uint64_t last_ = 0;
};

class VfioBarImport : public testing::Test {
  protected:
    Result<void> try_to_ask(ProbedGpu& gpu) {
        report_ = Report{"vfio_bar_import_stub", vfio_bar_import_question};
        return ask_vfio_bar_import(report_, Requests{kernel_}, FakeKernel::function(), range_, gpu);
    }
    void ask() {
        const auto asked = try_to_ask(gpu_);
        ASSERT_TRUE(asked) << asked.error().message();
        EXPECT_EQ(report_.exit_status(), 0);
        EXPECT_EQ(kernel_.writeable_maps_of_the_region, 0) << "registers are only read";
        EXPECT_TRUE(gpu_.live.empty()) << "what was imported is released";
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
    ScriptedGpu gpu_{os::real_system()};
    BarRange range_;
    Report report_{"vfio_bar_import_stub", vfio_bar_import_question};
};

/// As an A6000 and an H200 answer for their own memory.
TEST_F(VfioBarImport, ARuntimeThatTakesNoDmaBufAtAllSaysNothingOfABarsByRefusingIt) {
    gpu_.own = {{ExternalHandle::dma_buf_fd, vendor(801, "CUDA_ERROR_NOT_SUPPORTED")},
                {ExternalHandle::opaque_fd, vendor(999, "CUDA_ERROR_UNKNOWN")},
                {ExternalHandle::shareable_handle, std::nullopt}};
    gpu_.bar = {{ExternalHandle::dma_buf_fd, vendor(801, "CUDA_ERROR_NOT_SUPPORTED")},
                {ExternalHandle::opaque_fd, vendor(999, "CUDA_ERROR_UNKNOWN")},
                {ExternalHandle::shareable_handle, vendor(999, "CUDA_ERROR_UNKNOWN")}};
    ask();
    EXPECT_EQ(word("dma_buf_fd"), "inconclusive");
    EXPECT_EQ(answer("dma_buf_fd").failed_controls, std::vector<std::string>{"control.own_memory_as_dma_buf_fd"});
    EXPECT_EQ(word("opaque_fd"), "inconclusive");
    EXPECT_EQ(word("shareable_handle"), "refused");
    EXPECT_EQ(word("import"), "refused") << "it does import something";
    EXPECT_EQ(word("device_read"), "not_tried");
    EXPECT_EQ(value("dma_buf_fd.import"), "CUDA_ERROR_NOT_SUPPORTED");
    EXPECT_EQ(value("own.shareable_handle.import"), "ok");
    EXPECT_EQ(value("host.value"), "0x102030405060708");
}

TEST_F(VfioBarImport, ARuntimeThatImportsNothingLeavesItOpen) {
    for (auto& [kind, error] : gpu_.own) {
        error = gpu_.bar[kind] = vendor(2, "hipErrorOutOfMemory");
    }
    ask();
    EXPECT_EQ(word("import"), "inconclusive");
    EXPECT_EQ(answer("import").failed_controls, std::vector<std::string>{"control.own_memory_in_some_way"});
}

TEST_F(VfioBarImport, AKindThatARuntimeDoesNotHaveIsToldFromARefusal) {
    gpu_.own[ExternalHandle::dma_buf_fd].reset();
    gpu_.bar[ExternalHandle::dma_buf_fd] = of_kernel(EINVAL);
    gpu_.own[ExternalHandle::opaque_fd] = gpu_.bar[ExternalHandle::opaque_fd] = of_kernel(ENOSYS);
    ask();
    EXPECT_EQ(word("dma_buf_fd"), "refused");
    EXPECT_EQ(word("opaque_fd"), "no_such_kind");
    EXPECT_EQ(word("shareable_handle"), "no_such_kind");
    EXPECT_EQ(word("import"), "refused");
}

TEST_F(VfioBarImport, WithoutOwnMemoryToExportThereIsNoControl) {
    gpu_.export_error = vendor(2, "CUDA_ERROR_OUT_OF_MEMORY");
    gpu_.bar[ExternalHandle::dma_buf_fd] = vendor(801, "CUDA_ERROR_NOT_SUPPORTED");
    ask();
    EXPECT_EQ(word("dma_buf_fd"), "inconclusive");
    EXPECT_EQ(value("own.dma_buf_fd.export"), "CUDA_ERROR_OUT_OF_MEMORY");
    EXPECT_EQ(word("import"), "inconclusive");
}

TEST_F(VfioBarImport, WhatIsTakenIsReadByTheDevice) {
    gpu_.bar[ExternalHandle::dma_buf_fd].reset();
    ask();
    EXPECT_EQ(word("dma_buf_fd"), "accepted") << "whatever becomes of its own memory";
    EXPECT_EQ(word("import"), "accepted");
    EXPECT_EQ(word("device_read"), "equal");
    EXPECT_NE(answer("device_read").sentence.find("by a kernel"), std::string::npos);
    EXPECT_EQ(value("dma_buf_fd.device_value"), "0x102030405060708");
    EXPECT_EQ(gpu_.bar_length, ByteCount{4096});
    EXPECT_EQ(kernel_.exported_regions, std::vector<std::uint32_t>{0});
}

TEST_F(VfioBarImport, AReadByACopyIsCalledWeaker) {
    gpu_.bar[ExternalHandle::dma_buf_fd].reset();
    gpu_.way = ReadBy::copy;
    ask();
    EXPECT_NE(answer("device_read").sentence.find("weaker"), std::string::npos);
}

TEST_F(VfioBarImport, SomethingElseIsNoEqual) {
    gpu_.bar[ExternalHandle::dma_buf_fd].reset();
    gpu_.value = cap + 1;
    ask();
    EXPECT_EQ(word("device_read"), "differs");
}

TEST_F(VfioBarImport, AReadThatFailsIsToldFromOneThatDiffers) {
    gpu_.bar[ExternalHandle::dma_buf_fd].reset();
    gpu_.read_error = vendor(700, "CUDA_ERROR_ILLEGAL_ADDRESS");
    ask();
    EXPECT_EQ(word("import"), "accepted");
    EXPECT_EQ(word("device_read"), "failed");
    EXPECT_EQ(value("dma_buf_fd.device_read"), "CUDA_ERROR_ILLEGAL_ADDRESS");
}

TEST_F(VfioBarImport, AllOnesOnBothSidesProveNothing) {
    gpu_.bar[ExternalHandle::dma_buf_fd].reset();
    for (const std::uint64_t nothing : {std::uint64_t{0}, ~std::uint64_t{0}}) {
        kernel_.set_register(nothing);
        gpu_.value = nothing;
        ask();
        EXPECT_EQ(word("device_read"), "inconclusive");
        EXPECT_EQ(answer("device_read").failed_controls,
                  std::vector<std::string>{"control.device_read.the_value_tells"});
        EXPECT_EQ(word("import"), "accepted");
    }
}

TEST_F(VfioBarImport, WithoutTheHostsOwnReadNothingIsCompared) {
    gpu_.bar[ExternalHandle::dma_buf_fd].reset();
    kernel_.mmap_of_region = EINVAL;
    ask();
    EXPECT_EQ(word("device_read"), "inconclusive");
    EXPECT_EQ(answer("device_read").failed_controls,
              std::vector<std::string>{"control.device_read.host_reads_the_region"});
    EXPECT_EQ(word("cpu_mmap"), "refused") << "which needs no comparison";
}

TEST_F(VfioBarImport, WhetherTheCpuMayMapTheDescriptorIsTold) {
    ask();
    EXPECT_EQ(word("cpu_mmap"), "refused");
    EXPECT_EQ(value("cpu.mmap"), "EINVAL");
    EXPECT_EQ(word("cpu_read"), "no such topic");
    kernel_.mmap_of_bar_dma_buf = 0;
    ask();
    EXPECT_EQ(word("cpu_mmap"), "allowed");
    EXPECT_EQ(word("cpu_read"), "equal");
    kernel_.set_register_of_dma_bufs(4711);
    ask();
    EXPECT_EQ(word("cpu_read"), "differs");
}

TEST_F(VfioBarImport, TheRangeIsExportedAsAsked) {
    range_ = {0, 8192, 8192};
    gpu_.bar[ExternalHandle::dma_buf_fd].reset();
    ask();
    EXPECT_EQ(value("range.offset"), 8192);
    EXPECT_EQ(gpu_.bar_length, ByteCount{8192});
    EXPECT_EQ(report_.find("host.value")->note, "the first eight bytes of the range");
}

TEST_F(VfioBarImport, RangesThatAreNotInTheBarAreRefused) {
    for (const BarRange& range :
         {BarRange{0, 0, 0}, BarRange{0, 100, 4096}, BarRange{0, 0, 100}, BarRange{0, 16384, 4096},
          BarRange{0, 0, 20480}, BarRange{1, 0, 4096}, BarRange{0, 4096, ~std::uint64_t{4095}}}) {
        range_ = range;
        const auto asked = try_to_ask(gpu_);
        ASSERT_FALSE(asked) << range.region << " " << range.offset << " " << range.length;
        EXPECT_EQ(asked.error().code, EINVAL);
        EXPECT_FALSE(asked.error().hint.empty());
    }
    EXPECT_TRUE(kernel_.exported_regions.empty()) << "the kernel is not asked";
}

TEST_F(VfioBarImport, AKernelWithoutExportsIsNamed) {
    kernel_.export_bar = ENOTTY;
    const auto without = try_to_ask(gpu_);
    ASSERT_FALSE(without);
    EXPECT_NE(without.error().hint.find("Linux 6.19"), std::string::npos);
    kernel_.export_bar = EOPNOTSUPP;
    const auto refused = try_to_ask(gpu_);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().hint.find("Linux 6.19"), std::string::npos) << "it is not the kernel's age";
    kernel_.bind = EBUSY;
    EXPECT_EQ(try_to_ask(gpu_).error().code, EBUSY);
}

/// The stub itself, as the program asks it: it imports what the CPU may map, and reads the very register.
TEST_F(VfioBarImport, TheStubTakesWhatTheCpuMayMap) {
    const GpuFlavour& flavour = gpu_flavour();
    for (const int mmap : {EINVAL, 0}) {
        kernel_.mmap_of_bar_dma_buf = mmap;
        auto stub = flavour.open(kernel_);
        ASSERT_TRUE(stub) << stub.error().message();
        const auto asked = try_to_ask(**stub);
        ASSERT_TRUE(asked) << asked.error().message();
        EXPECT_EQ(value("own.dma_buf_fd.import"), "ok");
        EXPECT_EQ(word("dma_buf_fd"), mmap == 0 ? "accepted" : "refused");
        EXPECT_EQ(word("opaque_fd"), "no_such_kind");
        EXPECT_EQ(word("import"), mmap == 0 ? "accepted" : "refused");
        EXPECT_EQ(word("device_read"), mmap == 0 ? "equal" : "not_tried");
    }
}

} // namespace
} // namespace upcie::probes
