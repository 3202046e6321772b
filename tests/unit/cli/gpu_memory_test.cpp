// SPDX-License-Identifier: BSD-3-Clause
// --into: blocks that a drive moves into and out of a GPU's memory, over the stub and over the tests' CUDA library.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "command.hpp"

namespace upcie::cli {
namespace {
namespace gpu_memory {

using test::Answer;
using test::upcie;

class IntoGpu : public testing::TestWithParam<std::string> {
  protected:
    static void SetUpTestSuite() {
        ::setenv("UPCIE_CUDA_LIBRARY", UPCIE_FAKE_GPU_FOLDER "/libfake_cuda.so", 1);
        ::setenv("UPCIE_HIP_LIBRARY", UPCIE_FAKE_GPU_FOLDER "/libfake_hip.so", 1);
    }
    static void TearDownTestSuite() {
        ::unsetenv("UPCIE_CUDA_LIBRARY");
        ::unsetenv("UPCIE_HIP_LIBRARY");
    }
    /// Of so many good blocks, those that the device itself finds good: HIP has no kernel for it, and copies.
    [[nodiscard]] int on_device(int blocks) const { return GetParam() == "hip:0" ? 0 : blocks; }

    /// On a drive that translates, and on one that uses bus addresses, scattered.
    template <class Check>
    void on_both(const std::string& more, const std::vector<std::string>& rest, const Check& check) {
        for (const char* const space : {"", ",scatter=1"}) {
            std::vector<std::string> words{rest.front(), "sim:size=4M" + std::string{space} + more, "--into",
                                           GetParam(), "--json"};
            words.insert(words.end(), rest.begin() + 1, rest.end());
            SCOPED_TRACE(words[1]);
            check(upcie(words));
        }
    }
};

TEST_P(IntoGpu, WhatIsWrittenFromItIsReadIntoItAndCheckedThere) {
    on_both("", {"verify", "--blocks", "0", "--passes", "2", "--random"}, [&](const Answer& answer) {
        ASSERT_EQ(answer.code, 0) << answer.err;
        EXPECT_EQ(answer.json()["result"]["counts"]["good"], 2 * 8192);
        EXPECT_EQ(answer.json()["result"]["good_on_device"], on_device(2 * 8192)) << "a checksum by the device says so";
        EXPECT_EQ(answer.json()["result"]["memory"], GetParam());
    });
}

TEST_P(IntoGpu, DataThatGoesWrongIsFoundAsOnTheHost) {
    const std::pair<const char*, const char*> faults[] = {
        {"misplaced:1", "misplaced"}, {"corrupt", "corrupt"}, {"dropped", "untouched"}};
    for (const auto& [fault, found] : faults) {
        const char* const verdict = found; // a lambda may not take a structured binding
        on_both(",faults=" + std::string{fault} + "@op=read&lba=16..23&once",
                {"verify", "--blocks", "64", "--size", "4K"}, [&](const Answer& answer) {
                    EXPECT_EQ(answer.code, 3) << answer.out;
                    Json result = answer.json()["result"];
                    EXPECT_GT(result["counts"].value(verdict, 0), 0) << answer.out;
                    EXPECT_EQ(result["good_on_device"], on_device(56)) << "all commands but the bad one";
                });
    }
}

TEST_P(IntoGpu, ReadAndWriteGoThroughItToo) {
    const std::string folder = testing::TempDir() + "upcie-into." + std::to_string(::getpid());
    std::filesystem::create_directories(folder);
    const std::string input = folder + "/in";
    const std::string output = folder + "/out";
    std::string content(300 * 512, '\0');
    for (std::size_t i = 0; i < content.size(); ++i) {
        content[i] = static_cast<char>(i * 31 + i / 512);
    }
    std::ofstream{input, std::ios::binary} << content;
    // One process, one medium: the file behind a simulated drive keeps what was written.
    const std::string drive = "sim:size=1M,file=" + folder + "/image";
    const auto written = upcie({"write", drive, "--input", input, "--lba", "7", "--into", GetParam(), "--json"});
    ASSERT_EQ(written.code, 0) << written.err;
    EXPECT_EQ(written.json()["result"]["memory"], GetParam());
    const auto read = upcie({"read", drive, "--output", output, "--lba", "7", "--blocks", "300", "--into", GetParam()});
    ASSERT_EQ(read.code, 0) << read.err;
    std::ifstream back{output, std::ios::binary};
    const std::string found{std::istreambuf_iterator<char>{back}, {}};
    EXPECT_TRUE(found == content);
    std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(All, IntoGpu,
                         testing::Values("stub", "stub:whole-object", "stub:suballocated", "cuda", "cuda:0", "hip:0"));

TEST(IntoGpuRefusals, NamesAndMissingRuntimes) {
    for (const char* const text :
         {"gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999", "stub:", "stub:magic", "hip:a"}) {
        const auto answer = upcie({"verify", "sim:size=1M", "--into", text});
        EXPECT_EQ(answer.code, 2) << text;
        EXPECT_TRUE(answer.says("nor a GPU")) << answer.err;
    }
    ::setenv("UPCIE_CUDA_LIBRARY", "/nowhere/libcuda.so", 1);
    const auto missing = upcie({"verify", "sim:size=1M", "--into", "cuda"});
    EXPECT_EQ(missing.code, 4);
    EXPECT_TRUE(missing.says("UPCIE_CUDA_LIBRARY")) << missing.err;
    ::setenv("UPCIE_CUDA_LIBRARY", UPCIE_FAKE_GPU_FOLDER "/libfake_cuda.so", 1);
    const auto beyond = upcie({"verify", "sim:size=1M", "--into", "cuda:7"});
    EXPECT_EQ(beyond.code, 4);
    EXPECT_TRUE(beyond.says("devices 0 to 0")) << beyond.err;
    ::unsetenv("UPCIE_CUDA_LIBRARY");
}

} // namespace gpu_memory
} // namespace
} // namespace upcie::cli
