// SPDX-License-Identifier: BSD-3-Clause
// The export probe's verdicts, over runtimes of every manner.
#include <cerrno>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <upcie/gpu/flavour.hpp>
#include <upcie/gpu/stub.hpp>
#include <upcie/os/system.hpp>

#include "gpu/dmabuf.hpp"
#include "gpu/export_kinds.hpp"
#include "support/mock_system.hpp"

namespace upcie::probes {
namespace {

using namespace upcie::literals;
using gpu::stub::Manner;
using gpu::stub::Stub;

gpu::FlavourRuntime<Stub> runtime_of(gpu::stub::Options options) {
    options.udmabuf_node.clear();
    return gpu::FlavourRuntime<Stub>{Stub::create(os::real_system(), std::move(options)).value()};
}

Report ask(gpu::FlavourRuntime<Stub>& runtime, bool importing = true) {
    Report report{"dmabuf_stub", dmabuf_export_question};
    Describe describe;
    if (importing) {
        describe = [&](const gpu::Export& exported) { return runtime.flavour().scatter_list(exported); };
    }
    const auto asked = ask_dmabuf_export(report, runtime, describe);
    EXPECT_TRUE(asked) << asked.error().message();
    return report;
}

std::string answer(const Report& report, const std::string& topic) {
    for (const Answer& one : report.judged()) {
        if (one.topic == topic) {
            return one.answer;
        }
    }
    return "no such topic";
}

TEST(DmabufExport, EveryMannerHasItsOwnVerdict) {
    struct Expected {
        Manner manner;
        const char* range;
        const char* small;
        const char* verdict;
    };
    for (const Expected& expected : {Expected{Manner::exact, "honoured", "own_pages", "exact"},
                                     Expected{Manner::whole_object, "ignored", "own_pages", "whole-object"},
                                     Expected{Manner::suballocated, "honoured", "share_pages", "suballocated"}}) {
        for (const bool importing : {true, false}) {
            gpu::stub::Options options;
            options.manner = expected.manner;
            auto runtime = runtime_of(options);
            const Report report = ask(runtime, importing);
            EXPECT_EQ(answer(report, "range"), expected.range);
            EXPECT_EQ(answer(report, "small"), expected.small);
            EXPECT_EQ(answer(report, "recovery"), "exact");
            EXPECT_EQ(answer(report, "manner"), expected.verdict) << (importing ? "" : "by sizes alone");
            EXPECT_EQ(report.exit_status(), 0);
            for (const char* const name : {"a", "b"}) {
                // What was not described is not said to be.
                const Observation* const described = report.find(std::string{name} + ".whole_is_described");
                const Observation* const sized = report.find(std::string{name} + ".descriptor_is_of_the_whole");
                ASSERT_NE(importing ? described : sized, nullptr);
                EXPECT_EQ(importing ? sized : described, nullptr);
                EXPECT_EQ((importing ? described : sized)->held, std::optional<bool>{true});
            }
        }
    }
}

/// An importer that refuses describes nothing either.
TEST(DmabufExport, WithAnImporterThatRefusesOnlySizesAreSeen) {
    auto runtime = runtime_of({});
    Report report{"dmabuf_stub", dmabuf_export_question};
    ASSERT_TRUE(ask_dmabuf_export(report, runtime, [](const gpu::Export&) -> Result<dmabuf::ScatterList> {
        return fail(EPERM, "import", "an export", "It is a test.");
    }));
    EXPECT_EQ(report.find("a.whole.scatter_list")->value, "EPERM");
    EXPECT_EQ(report.find("a.whole_is_described"), nullptr);
    EXPECT_NE(report.find("a.descriptor_is_of_the_whole"), nullptr);
}

TEST(DmabufExport, TheNoteAboutTheKernelsOwnErrorStandsOnlyBesideIt) {
    constexpr int enotsupp = 524;
    for (const int error : {0, EACCES, EOPNOTSUPP, enotsupp}) {
        auto runtime = runtime_of({});
        const DevicePointer base = runtime.allocate(4_MiB).value();
        test::MockSystem system;
        if (error != 0) {
            ON_CALL(system, mmap).WillByDefault(testing::SetErrnoAndReturn(error, MAP_FAILED));
        }
        Report report{"dmabuf_stub", dmabuf_export_question};
        ask_descriptor(report, system, runtime.export_range(base, 4_MiB).value());
        const Observation* const seen = report.find("descriptor.mmap");
        ASSERT_NE(seen, nullptr);
        EXPECT_EQ(seen->error, std::optional<int>{error});
        EXPECT_EQ(seen->note.find("524") != std::string::npos, error == enotsupp) << seen->note;
    }
}

TEST(DmabufExport, WhatAnExportDescribesIsTold) {
    gpu::stub::Options options;
    options.manner = Manner::whole_object;
    options.runs = {4_MiB, 8_MiB};
    auto runtime = runtime_of(options);
    const Report report = ask(runtime);
    const auto value = [&](const char* name) {
        const Observation* const found = report.find(name);
        EXPECT_NE(found, nullptr) << name;
        return found == nullptr ? Value{} : found->value;
    };
    EXPECT_EQ(value("a.4k_at_4k.asked"), 4096);
    EXPECT_EQ(value("a.4k_at_4k.described"), 64 << 20);
    EXPECT_EQ(value("a.4k_at_4k.first_address"), value("a.whole.first_address"));
    EXPECT_EQ(value("a.whole.runs"), 9) << "4 MiB, then 8 MiB each, 4 left";
    EXPECT_EQ(value("a.whole.granule"), 2 << 20);
    EXPECT_EQ(value("a.whole.shortest_segment"), 65536);
    EXPECT_EQ(value("odd.reported"), (3 << 20) + 4096);
    EXPECT_EQ(value("odd.as_reported.described"), 4 << 20);
    EXPECT_NE(value("a.whole.first_address"), value("b.whole.first_address"));
}

TEST(DmabufExport, ExactExportsGoPastTheReportedSizeAndRefuseWhatIsUnaligned) {
    gpu::stub::Options options;
    auto runtime = runtime_of(options);
    const Report report = ask(runtime);
    EXPECT_EQ(report.find("odd.as_reported.described")->value, (3 << 20) + 4096);
    EXPECT_EQ(report.find("odd.rounded_up.described")->value, 4 << 20);
    for (const char* edge : {"edge.unaligned_start", "edge.unaligned_length", "edge.no_bytes", "edge.past_the_end",
                             "edge.two_allocations"}) {
        ASSERT_NE(report.find(edge), nullptr) << edge;
        EXPECT_EQ(report.find(edge)->value, "EINVAL") << edge;
    }
}

TEST(DmabufExport, WithoutExportsNothingIsConcluded) {
    gpu::stub::Options options;
    options.exports_refused = true;
    auto runtime = runtime_of(options);
    const Report report = ask(runtime);
    EXPECT_EQ(answer(report, "range"), "inconclusive");
    EXPECT_EQ(answer(report, "manner"), "inconclusive");
    EXPECT_EQ(report.exit_status(), 0);
    EXPECT_EQ(report.find("a.whole.export")->value, "EOPNOTSUPP");
}

/// A runtime that hands out the neighbour's memory: neither manner.
TEST(DmabufExport, SomethingElseIsCalledSo) {
    auto runtime = runtime_of({});
    Report report{"dmabuf_stub", dmabuf_export_question};
    const Describe shifted = [&](const gpu::Export& exported) -> Result<dmabuf::ScatterList> {
        const auto list = runtime.flavour().scatter_list(exported).value();
        const dmabuf::Segment one{list.runs().front().extent.address + (exported.size == 64_MiB ? 0_B : 4_KiB),
                                  list.total(), dmabuf::SegmentKind::bar};
        return dmabuf::ScatterList::from_segments({&one, 1}, "shifted");
    };
    ASSERT_TRUE(ask_dmabuf_export(report, runtime, shifted));
    EXPECT_EQ(answer(report, "range"), "other");
    EXPECT_EQ(answer(report, "manner"), "other");
}

} // namespace
} // namespace upcie::probes
