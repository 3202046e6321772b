// SPDX-License-Identifier: BSD-3-Clause
// dmabuf::Importer and the kernel module behind it against a real kernel.
//   dmabuf_import_check udmabuf BDF ADDRESSING    layouts made on purpose; the witness is /proc/self/pagemap.
//   ADDRESSING
//                                                 is what is expected: physical, default_domain or bounced
//   dmabuf_import_check high BDF                  physical addresses above 4 GiB
//   dmabuf_import_check owned BDF                 a function that vfio has opened: its default domain is not live
//   dmabuf_import_check bar EXPORTER IMPORTER     a vfio BAR; the witness is sysfs `resource`
//   dmabuf_import_check revoke EXPORTER IMPORTER  every way in which vfio revokes it
//   dmabuf_import_check remove BDF                the function that imports is removed
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <upcie/open.hpp>
#include <upcie/pci/enumeration.hpp>
#include <upcie/vfio/device.hpp>

#include "dmabuf_layout.hpp"

using namespace upcie;
using namespace upcie::literals;
using namespace upcie::test;
using dmabuf::Importer;

namespace {

std::size_t runs_of(const Addresses& pages) {
    std::size_t runs = pages.empty() ? 0 : 1;
    for (std::size_t i = 1; i < pages.size(); ++i) {
        runs += pages[i] == pages[i - 1] + page ? 0U : 1U;
    }
    return runs;
}

Addresses pages_of(const dmabuf::ScatterList& list) {
    Addresses pages;
    for (std::uint64_t offset = 0; offset < list.total().value(); offset += page) {
        pages.push_back(list.first(ByteCount{offset}, ByteCount{page}).address.value());
    }
    return pages;
}

std::map<std::string, Layout> layouts() {
    std::map<std::string, Layout> made;
    const Memory small{256};
    made.emplace("one piece of 256 pages", Layout{small, {{0, 256}}});
    std::vector<std::uint64_t> order(256);
    std::iota(order.begin(), order.end(), 0);
    std::mt19937_64 random{7};
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> pieces;
    for (const std::uint64_t first : order) {
        pieces.emplace_back(first, 1);
    }
    made.emplace("256 pages shuffled", Layout{small, pieces});
    std::reverse(pieces.begin(), pieces.end());
    pieces.resize(200);
    made.emplace("200 pieces of differing lengths", [&] {
        for (auto& [first, pages] : pieces) {
            pages = std::min<std::uint64_t>(1 + random() % 7, 256 - first);
        }
        return Layout{small, pieces};
    }());
    made.emplace("the same page three times", Layout{small, {{9, 1}, {9, 1}, {9, 1}}});
    const Memory huge{1024, MFD_HUGETLB};
    made.emplace("hugepages in the other order", Layout{huge, {{512, 512}, {0, 512}}});
    made.emplace("the middle of a hugepage", Layout{huge, {{100, 300}}});
    return made;
}

/// Pages that follow each other in physical memory, at most.
std::size_t longest_run(const std::vector<std::uint64_t>& pages) {
    std::size_t longest = 0;
    std::size_t run = 0;
    for (std::size_t i = 0; i < pages.size(); ++i) {
        run = i != 0 && pages[i] == pages[i - 1] + 4096 ? run + 1 : 1;
        longest = std::max(longest, run);
    }
    return longest;
}

void check_udmabuf(const std::string& bdf, const std::string& addressing) {
    const auto source = importer();
    const bool physical = addressing == "physical";
    for (const auto& [name, layout] : layouts()) {
        const auto usual = source.import(layout.buffer, function(bdf));
        // Bounce buffers hold pieces of 256 KiB at most (IO_TLB_SEGSIZE), and how memory lies is the kernel's choice.
        if (addressing == "bounced" && longest_run(layout.wanted) > 64) {
            refused(usual, EIO, "bounce buffers", name + ", more than bounce buffers hold at once");
            continue;
        }
        if (!physical) {
            refused(usual, EOPNOTSUPP, addressing == "bounced" ? "DMA mask" : "default DMA domain",
                    name + " is refused");
        } else if (!usual) {
            need(Result<int>{tl::unexpected{usual.error()}}, name);
        }
        const auto made = need(source.import(layout.buffer, function(bdf), Importer::Accept::any), name);
        const auto& list = made.scatter_list();
        fmt::print("     {}: {} segments, {} runs, {}, {}, peer to peer {}, {}\n", name, list.segment_count(),
                   list.runs().size(), to_string(made.facts().addressing), to_string(made.facts().pinning),
                   made.facts().peer_to_peer, made.facts().exporter);
        expect(made.facts().exporter == "udmabuf" && made.facts().size == layout.buffer.size(), "exporter and size");
        expect(made.facts().pinning != dmabuf::Pinning::refused, "its memory stays where it is");
        expect(list.total() == layout.buffer.size(), "the list describes all of it");
        expect(*made.revoked() == false, "it is not revoked");
        const bool agrees = pages_of(list) == layout.wanted;
        if (physical) {
            expect(made.facts().addressing == dmabuf::Addressing::physical, "addressing is physical");
            expect(agrees, fmt::format("every one of {} pages is where pagemap says", layout.wanted.size()));
            expect(list.runs().size() == runs_of(layout.wanted), fmt::format("in {} runs", runs_of(layout.wanted)));
            expect(list.kind() == dmabuf::SegmentKind::ram, "all of it RAM");
            expect(usual && usual->scatter_list().runs().size() == list.runs().size(), "the usual way says the same");
        } else {
            const auto wanted =
                addressing == "bounced" ? dmabuf::Addressing::bounced : dmabuf::Addressing::default_domain;
            expect(made.facts().addressing == wanted, "addressing is " + addressing);
            expect(!agrees, "the addresses are not pagemap's");
            expect(list.kind() == dmabuf::SegmentKind::unknown, "nothing is said of what lies behind");
        }
    }
}

/// The DMA mask of a function without a kernel driver is 32 bits until somebody widens it.
void check_high(const std::string& bdf) {
    const Memory memory{64};
    const Layout layout{memory, {{0, 64}}};
    const std::uint64_t highest = *std::max_element(layout.wanted.begin(), layout.wanted.end());
    expect(highest >> 32 != 0, fmt::format("pagemap: memory at {:#x}", highest));
    const auto made = need(importer().import(layout.buffer, function(bdf)), "imports");
    expect(pages_of(made.scatter_list()) == layout.wanted, "is where pagemap says");
}

void check_owned(const std::string& bdf) {
    const Memory memory{4};
    const Layout layout{memory, {{0, 4}}};
    const auto source = importer();
    expect(source.import(layout.buffer, function(bdf)).has_value(), "physical before vfio opens it");
    {
        const auto opened = need(open_function(host(), bdf, {}), "vfio opens it");
        refused(source.import(layout.buffer, function(bdf)), EOPNOTSUPP, "default DMA domain", "while vfio has it");
        const auto made =
            need(source.import(layout.buffer, function(bdf), Importer::Accept::any), "it can be looked at");
        expect(made.facts().addressing == dmabuf::Addressing::default_domain, "addressing is default domain");
        expect(made.scatter_list().kind() == dmabuf::SegmentKind::unknown, "nothing is said of what lies behind");
    }
    expect(source.import(layout.buffer, function(bdf)).has_value(), "physical again when vfio has closed it");
}

/// A function opened through vfio, with its BAR of memory that is the largest.
struct Exporter {
    explicit Exporter(const std::string& bdf)
        : info{need(pci::find_function(host(), need(pci::Bdf::parse(bdf), bdf)), bdf)},
          opened{need(open_function(host(), bdf, {}), "the exporter opens")},
          device{dynamic_cast<vfio::VfioFunction*>(opened.get())} {
        for (const auto& one : info.bars) {
            if (!one.io && !one.unassigned && one.index < 6 && (bar == nullptr || one.size > bar->size)) {
                bar = &one;
            }
        }
        if (device == nullptr || bar == nullptr) {
            need<int>(fail(ENODEV, "open", bdf, ""), "a vfio device with a memory BAR");
        }
    }
    dmabuf::DmaBuf slice(std::uint64_t offset, ByteCount length) {
        return need(dmabuf::DmaBuf::adopt(
                        host(), need(device->export_bar(bar->index, ByteCount{offset}, length), "a slice exports")),
                    "a slice");
    }
    void decode(bool on) {
        const std::uint32_t command = need(device->read_config(4, 2), "command register");
        const auto written = device->write_config(4, 2, on ? command | 2U : command & ~2U);
        expect(written.has_value(), on ? "memory decode goes on" : "memory decode goes off");
    }
    pci::FunctionInfo info;
    std::unique_ptr<pci::Function> opened;
    vfio::VfioFunction* device;
    const pci::BarInfo* bar = nullptr;
};

void check_bar(const std::string& from, const std::string& to) {
    Exporter exporter{from};
    const auto source = importer();
    const std::uint64_t base = exporter.bar->address.value();
    const std::uint64_t size = exporter.bar->size.value();
    for (const auto& [offset, length] :
         {std::pair<std::uint64_t, std::uint64_t>{0, size}, {0, page}, {size - page, page}, {size / 2, size / 4}}) {
        const auto made =
            need(source.import(exporter.slice(offset, ByteCount{length}), function(to)), "a slice imports");
        const auto& list = made.scatter_list();
        expect(list.runs().size() == 1 && list.runs()[0].extent.address.value() == base + offset &&
                   list.total() == ByteCount{length},
               fmt::format("bytes {:#x} to {:#x} of BAR {} are at {:#x}, {:#x} bytes: sysfs says {:#x}", offset,
                           offset + length, exporter.bar->index, list.runs()[0].extent.address.value(),
                           list.total().value(), base + offset));
        expect(list.kind() == dmabuf::SegmentKind::bar, "it is called a BAR");
        expect(made.facts().peer_to_peer, "peer to peer");
        fmt::print("     {}, {}\n", made.facts().exporter, to_string(made.facts().pinning));
    }
}

void check_revoke(const std::string& from, const std::string& to) {
    const auto source = importer();
    const Memory memory{1};
    const Layout stays{memory, {{0, 1}}};
    const auto other = need(source.import(stays.buffer, function(to)), "a buffer that stays");
    const auto revoked = [&](const dmabuf::Import& made, const std::string& by) {
        expect(source.any_revoked(std::chrono::seconds{2}).value_or(false), by + " is an event");
        expect(made.revoked().value_or(false), by + " revokes");
        expect(*other.revoked() == false, "and nothing else");
    };
    {
        Exporter exporter{from};
        const auto buffer = exporter.slice(0, 4_KiB);
        auto first = need(source.import(buffer, function(to)), "a slice imports");
        const auto second = need(importer().import(buffer, function(to)), "for another opener as well");
        expect(source.any_revoked().value_or(true) == false, "nothing is revoked yet");
        exporter.decode(false);
        revoked(first, "memory decode off");
        expect(second.revoked().value_or(false), "the other opener's too");
        refused(source.import(buffer, function(to)), ENODEV, "export it again", "no import while it is off");
        exporter.decode(true);
        expect(first.revoked().value_or(false), "once revoked, for good");
        auto again = need(source.import(buffer, function(to)), "but it imports anew");
        expect(again.revoked().value_or(true) == false, "which is not revoked");
        expect(source.any_revoked().value_or(false), "the event stays while the revoked one is held");
        expect(first.release().has_value(), "a revoked one is released");
        expect(source.any_revoked().value_or(true) == false, "and the event is gone");
        expect(exporter.device->reset().has_value(), "the device is reset");
        revoked(again, "a reset");
        expect(again.release().has_value(), "released");
        again = need(source.import(buffer, function(to)), "imports after the reset");
        exporter.opened.reset();
        revoked(again, "closing the device");
        refused(source.import(buffer, function(to)), ENODEV, "", "the buffer of a closed device");
    }
    expect(source.any_revoked().value_or(true) == false, "the end of an Import ends its event");
}

void check_remove(const std::string& bdf) {
    const auto source = importer();
    const Memory memory{8};
    const Layout layout{memory, {{4, 4}, {0, 4}}};
    const auto made = need(source.import(layout.buffer, function(bdf), Importer::Accept::any), "imports");
    std::ofstream{"/sys/bus/pci/devices/" + bdf + "/remove"} << 1;
    expect(source.any_revoked(std::chrono::seconds{2}).value_or(false), "the removal is an event");
    expect(made.revoked().value_or(false), "and revokes");
    refused(source.import(layout.buffer, function(bdf), Importer::Accept::any), ENXIO, "lspci",
            "a function that is gone");
    std::ofstream{"/sys/bus/pci/rescan"} << 1;
    const auto again =
        need(source.import(layout.buffer, function(bdf), Importer::Accept::any), "imports when it is back");
    expect(again.revoked().value_or(true) == false, "which is not revoked");
}

} // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const auto is = [&](const char* verb, std::size_t count) { return words.size() == count + 1 && words[0] == verb; };
    if (is("udmabuf", 2)) {
        check_udmabuf(words[1], words[2]);
    } else if (is("high", 1)) {
        check_high(words[1]);
    } else if (is("owned", 1)) {
        check_owned(words[1]);
    } else if (is("bar", 2)) {
        check_bar(words[1], words[2]);
    } else if (is("revoke", 2)) {
        check_revoke(words[1], words[2]);
    } else if (is("remove", 1)) {
        check_remove(words[1]);
    } else {
        fmt::print(stderr, "usage: see the head of {}\n", __FILE__);
        return 2;
    }
    return failures == 0 ? 0 : 1;
}
