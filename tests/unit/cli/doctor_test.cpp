// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "command.hpp"

namespace upcie::cli {
namespace {

using test::upcie;

/// A machine with one NVMe drive, described by files.
class Doctor : public ::testing::Test {
  protected:
    Doctor() {
        fake_.write("proc/sys/kernel/osrelease", "7.3.4\n");
        fake_.write("proc/cmdline", "root=/dev/vda1 intel_iommu=on quiet\n");
        fake_.write("proc/cpuinfo", "vendor_id\t: GenuineIntel\n");
        fake_.write("proc/self/status", "Name:\tupcie\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n");
        fake_.write("boot/config-7.3.4", "CONFIG_IOMMUFD=y\nCONFIG_VFIO_DEVICE_CDEV=y\nCONFIG_VFIO_PCI=m\n"
                                         "CONFIG_VFIO_NOIOMMU=y\nCONFIG_UIO_PCI_GENERIC=m\nCONFIG_UDMABUF=y\n"
                                         "CONFIG_PCI_P2PDMA=y\n");
        fake_.write("lib/modules/7.3.4/modules.dep",
                    "kernel/drivers/uio/uio_pci_generic.ko: kernel/drivers/uio/uio.ko\n");
        fake_.write("sys/module/vfio_pci/refcnt", "1");
        fake_.write("sys/module/vfio_iommu_type1/refcnt", "1");
        fake_.write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N\n");
        fake_.write("sys/class/iommu/dmar0/x", "");
        fake_.write("sys/firmware/acpi/tables/DMAR", "");
        fake_.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "16\n");
        fake_.write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "12\n");
        fake_.write("sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "16\n");
        fake_.write("sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages", "12\n");
        fake_.write("dev/iommu", "");
        fake_.write("dev/vfio/vfio", "");
        drive_.driver = "vfio-pci";
        drive_.iommu_group = 3;
        drive_.vfio_name = "vfio0";
        drive_.vfio_node = true;
    }

    test::Answer doctor() {
        fake_.add(drive_);
        return upcie({"doctor", "--json"}, test::roots_of(fake_));
    }
    static Json check(const Json& document, std::string_view id) {
        for (const auto& entry : document["result"]["checks"]) {
            if (entry["id"] == id) {
                return entry;
            }
        }
        ADD_FAILURE() << "no check " << id << " in\n" << document.dump(1);
        return Json{{"status", "absent"}, {"found", ""}, {"fix", ""}};
    }

    upcie::test::FakeSysfs fake_;
    upcie::test::FakeFunction drive_;
};

TEST_F(Doctor, AGoodMachineIsUsableAndTheDocumentIsWhole) {
    const auto answer = doctor();
    EXPECT_EQ(answer.code, 0) << answer.out;
    Json document = answer.json();
    ASSERT_FALSE(document.is_discarded()) << answer.out;
    EXPECT_EQ(document["schema"], "upcie.doctor/1");
    EXPECT_EQ(document["tool"], "upcie");
    EXPECT_EQ(document["kernel"], "7.3.4");
    EXPECT_EQ(document["exit_code"], 0);
    EXPECT_TRUE(document["error"].is_null());
    EXPECT_EQ(document["result"]["summary"]["usable"], true);
    EXPECT_EQ(document["result"]["devices"][0]["bdf"], "0000:01:00.0");
    EXPECT_EQ(document["result"]["devices"][0]["best"], "cdev");
    for (const auto& entry : document["result"]["checks"]) {
        EXPECT_TRUE(entry["status"] == "ok" || !entry["fix"].get<std::string>().empty()) << entry.dump();
        EXPECT_FALSE(entry["found"].get<std::string>().empty()) << entry.dump();
    }
}

TEST_F(Doctor, WhatIsThereIsFound) {
    Json document = doctor().json();
    EXPECT_EQ(check(document, "iommu.firmware")["status"], "ok");
    EXPECT_EQ(check(document, "iommu.enabled")["found"], "1 groups; units: dmar0");
    EXPECT_EQ(check(document, "iommu.command-line")["found"], "intel_iommu=on");
    EXPECT_EQ(check(document, "module.vfio_pci")["found"], "vfio_pci: loaded");
    EXPECT_EQ(check(document, "module.uio_pci_generic")["status"], "warn");
    EXPECT_EQ(check(document, "module.uio_pci_generic")["fix"], "modprobe uio_pci_generic");
    EXPECT_EQ(check(document, "vfio.cdev.vfio0")["status"], "ok");
    EXPECT_EQ(check(document, "memory.hugepages.2048k")["found"], "hugepages of 2 MiB, in all: 12 free of 16");
    EXPECT_EQ(check(document, "memory.hugepages.2048k.node0")["found"], "hugepages of 2 MiB, node 0: 12 free of 16");
}

TEST_F(Doctor, AnIommuThatIsOffIsMissingWithTheCommandLineToSay) {
    drive_.iommu_group = -1;
    drive_.driver = "nvme";
    drive_.vfio_name.clear();
    fake_.remove("sys/class/iommu/dmar0");
    fake_.write("proc/cmdline", "quiet\n");
    fake_.remove("dev/iommu");
    const auto answer = doctor();
    Json document = answer.json();
    EXPECT_EQ(check(document, "iommu.enabled")["status"], "missing");
    EXPECT_NE(check(document, "iommu.enabled")["fix"].get<std::string>().find("intel_iommu=on"), std::string::npos);
    EXPECT_EQ(check(document, "iommu.command-line")["status"], "missing");
    EXPECT_EQ(document["result"]["devices"][0]["best"], "uio");
}

TEST_F(Doctor, WithoutAnyPathTheExitStatusIsThatOfAPrecondition) {
    drive_.iommu_group = -1;
    drive_.driver = "nvme";
    drive_.vfio_name.clear();
    fake_.remove("sys/kernel/mm/hugepages");
    fake_.remove("dev/iommu");
    const auto answer = doctor();
    EXPECT_EQ(answer.code, 4) << answer.out;
    EXPECT_EQ(answer.json()["exit_code"], 4);
    EXPECT_TRUE(answer.json()["result"]["devices"][0]["best"].is_null());
}

TEST_F(Doctor, AKernelWithoutIommufdIsToldFromOneThatHasItAsAModule) {
    fake_.write("boot/config-7.3.4", "CONFIG_VFIO_PCI=m\n");
    fake_.remove("dev/iommu");
    Json document = doctor().json();
    EXPECT_EQ(check(document, "kernel.CONFIG_IOMMUFD")["status"], "missing");
    EXPECT_NE(check(document, "iommufd.node")["fix"].get<std::string>().find("CONFIG_IOMMUFD"), std::string::npos);
    fake_.write("lib/modules/7.3.4/modules.dep", "updates/iommufd.ko:\n");
    Json external = doctor().json();
    EXPECT_EQ(check(external, "kernel.CONFIG_IOMMUFD")["status"], "ok");
    EXPECT_EQ(check(external, "iommufd.node")["fix"], "modprobe iommufd");
}

TEST_F(Doctor, ABarWithoutAddressIsMissing) {
    drive_.resource = "0x0000000000000000 0x0000000000003fff 0x0000000020140204\n";
    Json document = doctor().json();
    EXPECT_EQ(check(document, "device.0000:01:00.0.bars")["status"], "missing");
}

TEST_F(Doctor, TopologyAndAcsBetweenADriveAndAGpu) {
    drive_.under = "pci0000:00/0000:00:1c.0/0000:05:00.0/0000:06:00.0";
    drive_.bdf = "0000:07:00.0";
    upcie::test::FakeFunction gpu;
    gpu.bdf = "0000:08:00.0";
    gpu.class_code = "0x030200";
    gpu.vendor = "0x10de";
    gpu.under = "pci0000:00/0000:00:1c.0/0000:05:00.0/0000:06:01.0";
    gpu.resource = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
                   "0x0000004000000000 0x00000040ffffffff 0x000000000014220c\n";
    fake_.add(gpu);
    // ACS in the second extended capability of the port above the drive, with request redirect on.
    std::string config(4096, '\0');
    const auto put = [&](std::size_t at, std::uint32_t value) {
        for (unsigned i = 0; i < 4; ++i) {
            config[at + i] = static_cast<char>(value >> (8 * i));
        }
    };
    put(0x100, 0x14000000 | 0x10000 | 0x0001);
    put(0x140, 0x00010000 | 0x000d);
    put(0x144, 0x00040000 | 0x007f);
    fake_.write("sys/devices/pci0000:00/0000:00:1c.0/0000:05:00.0/0000:06:00.0/config", config);
    fake_.link("sys/bus/pci/devices/0000:06:00.0",
               "../../../devices/pci0000:00/0000:00:1c.0/0000:05:00.0/0000:06:00.0");
    Json document = doctor().json();
    Json peers = check(document, "p2p.0000:07:00.0.0000:08:00.0");
    EXPECT_EQ(peers["status"], "warn");
    const auto found = peers["found"].get<std::string>();
    EXPECT_NE(found.find("meet in the switch at 0000:05:00.0"), std::string::npos) << found;
    EXPECT_NE(found.find("ACS at 0000:06:00.0 redirects"), std::string::npos) << found;
    EXPECT_NE(peers["fix"].get<std::string>().find("pci=disable_acs_redir=0000:06:00.0"), std::string::npos);
}

TEST_F(Doctor, GpuRuntimesAreFoundByTheirFilesAlone) {
    fake_.write("usr/lib/libcuda.so.1", "");
    fake_.write("sys/module/nvidia/version", "580.173.02\n");
    fake_.write("dev/nvidiactl", "");
    Json document = doctor().json();
    Json cuda = check(document, "gpu.cuda");
    EXPECT_EQ(cuda["status"], "ok");
    EXPECT_NE(cuda["found"].get<std::string>().find("580.173.02"), std::string::npos);
    EXPECT_EQ(check(document, "gpu.hip")["status"], "warn");
}

TEST_F(Doctor, TheTextForPeopleHasEveryFix) {
    fake_.add(drive_);
    const auto answer = upcie({"doctor"}, test::roots_of(fake_));
    EXPECT_EQ(answer.code, 0);
    EXPECT_TRUE(answer.says("fix: modprobe uio_pci_generic")) << answer.out;
    EXPECT_TRUE(answer.says("at least one controller can be driven from user space"));
}

TEST_F(Doctor, ListShowsTheDriveAndItsPaths) {
    fake_.add(drive_);
    const auto answer = upcie({"list", "--json"}, test::roots_of(fake_));
    EXPECT_EQ(answer.code, 0);
    Json functions = answer.json()["result"]["functions"];
    ASSERT_EQ(functions.size(), 1U);
    EXPECT_EQ(functions[0]["bdf"], "0000:01:00.0");
    EXPECT_EQ(functions[0]["driver"], "vfio-pci");
    EXPECT_EQ(functions[0]["iommu_group"]["number"], 3);
    EXPECT_EQ(functions[0]["iommu_group"]["type"], "DMA");
    EXPECT_EQ(functions[0]["bars"][0]["size"], 16384);
    EXPECT_EQ(functions[0]["paths"][0]["state"], "ready");
    const auto text = upcie({"list"}, test::roots_of(fake_));
    EXPECT_TRUE(text.says("0000:01:00.0  [1b36:0010]")) << text.out;
}

} // namespace
} // namespace upcie::cli
