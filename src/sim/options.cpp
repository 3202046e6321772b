// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/sim/options.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "sim/text.hpp"

namespace upcie::sim {

namespace {

using Setter = std::function<bool(Options&, std::string_view)>;

template <class Number>
Setter number(Number Options::*member) {
    return [member](Options& options, std::string_view text) {
        const auto value = parse_number(text);
        if (!value || *value > std::numeric_limits<Number>::max()) {
            return false;
        }
        options.*member = static_cast<Number>(*value);
        return true;
    };
}

Setter string(std::string Options::*member) {
    return [member](Options& options, std::string_view text) {
        options.*member = text;
        return !text.empty();
    };
}

std::optional<bool> on_or_off(std::string_view text) {
    if (text == "on" || text == "off") {
        return text == "on";
    }
    return std::nullopt;
}

Setter flag(std::function<void(Options&, bool)> set) {
    return [set = std::move(set)](Options& options, std::string_view text) {
        const auto value = on_or_off(text);
        if (value) {
            set(options, *value);
        }
        return value.has_value();
    };
}

bool set_milliseconds(std::chrono::milliseconds& target, std::string_view text) {
    if (!text.ends_with("ms")) {
        return false;
    }
    const auto value = parse_number(text.substr(0, text.size() - 2));
    if (!value || *value > 3'600'000) {
        return false;
    }
    target = std::chrono::milliseconds{*value};
    return true;
}

struct Key {
    std::string_view name;
    std::string_view expects;
    Setter set;
};

const auto& keys() {
    static const std::array table{
        Key{"size", "a size such as 1G",
            [](Options& options, std::string_view text) {
                const auto value = parse_size(text);
                options.size = ByteCount{value.value_or(0)};
                return value.has_value();
            }},
        Key{"lba", "512 or 4096", number(&Options::block_size)},
        Key{"meta", "bytes of metadata a block", number(&Options::metadata_size)},
        Key{"ns", "a number of namespaces", number(&Options::namespaces)},
        Key{"file", "a path", string(&Options::file)},
        Key{"mdts", "an exponent", number(&Options::mdts)},
        Key{"mqes", "a queue's entries less one", number(&Options::mqes)},
        Key{"queues", "a number of I/O queue pairs", number(&Options::queues)},
        Key{"vectors", "a number of MSI-X vectors, or none",
            [](Options& options, std::string_view text) {
                options.no_interrupts = text == "none";
                return options.no_interrupts || number(&Options::vectors)(options, text);
            }},
        Key{"sgl", "none, bytes or dwords",
            [](Options& options, std::string_view text) {
                options.sgl = text == "bytes"    ? nvme::SglSupport::bytes
                              : text == "dwords" ? nvme::SglSupport::dwords
                                                 : nvme::SglSupport::none;
                return text == "bytes" || text == "dwords" || text == "none";
            }},
        Key{"dstrd", "an exponent", number(&Options::dstrd)},
        Key{"mpsmin", "an exponent", number(&Options::mpsmin)},
        Key{"mpsmax", "an exponent", number(&Options::mpsmax)},
        Key{"to", "units of 500 ms", number(&Options::to)},
        Key{"ready", "milliseconds such as 20ms",
            [](Options& options, std::string_view text) { return set_milliseconds(options.ready_delay, text); }},
        Key{"msix", "an offset in BAR 0", number(&Options::msix_table)},
        Key{"vwc", "on or off", flag([](Options& options, bool on) { options.volatile_cache = on; })},
        Key{"vendor", "a PCI vendor", number(&Options::vendor)},
        Key{"device", "a PCI device", number(&Options::device)},
        Key{"serial", "a text", string(&Options::serial)},
        Key{"model", "a text", string(&Options::model)},
        Key{"firmware", "a text", string(&Options::firmware)},
        Key{"thread", "on or off", flag([](Options& options, bool on) { options.threaded = on; })},
        Key{"iova", "first..last address",
            [](Options& options, std::string_view text) {
                const auto range = parse_span(text);
                if (range) {
                    options.addresses.aperture = {Iova{range->first}, Iova{range->second}};
                }
                return range.has_value();
            }},
        Key{"scatter", "pages in a run",
            [](Options& options, std::string_view text) {
                const auto value = parse_number(text);
                options.addresses.pages_per_run = static_cast<unsigned>(value.value_or(0));
                return value && *value >= 1 && *value <= 65536;
            }},
        Key{"zero", "on or off", flag([](Options& options, bool on) { options.addresses.use_zero = on; })},
        Key{"seed", "a number",
            [](Options& options, std::string_view text) {
                const auto value = parse_number(text);
                options.addresses.seed = value.value_or(0);
                return value.has_value();
            }},
    };
    return table;
}

} // namespace

Result<Options> Options::parse(std::string_view text) {
    const std::string whole{text};
    if (text.starts_with("sim:")) {
        text.remove_prefix(4);
    } else if (text == "sim") {
        text = {};
    }
    Options options;
    std::vector<std::string_view> seen;
    for (const std::string_view part : split(text, ',')) {
        const std::size_t equals = part.find('=');
        const std::string_view name = part.substr(0, equals);
        const std::string_view value = equals == std::string_view::npos ? std::string_view{} : part.substr(equals + 1);
        if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
            return fail(EINVAL, "parse simulated device", fmt::format("\"{}\" in \"{}\"", part, whole),
                        fmt::format("{} is given twice.", name));
        }
        seen.push_back(name);
        if (name == "faults") {
            auto script = FaultScript::parse(value);
            if (!script) {
                return tl::unexpected{std::move(script.error())};
            }
            options.faults = std::move(*script);
            continue;
        }
        const Key* found = nullptr;
        std::string known;
        for (const Key& key : keys()) {
            if (key.name == name) {
                found = &key;
            }
            known += fmt::format("{}, ", key.name);
        }
        if (found == nullptr) {
            return fail(EINVAL, "parse simulated device", fmt::format("\"{}\" in \"{}\"", part, whole),
                        fmt::format("There is no such key; there are {}and faults.", known));
        }
        if (equals == std::string_view::npos || !found->set(options, value)) {
            return fail(EINVAL, "parse simulated device", fmt::format("\"{}\" in \"{}\"", part, whole),
                        fmt::format("{} takes {}.", found->name, found->expects));
        }
    }
    const auto checked = options.check();
    if (!checked) {
        return tl::unexpected{checked.error()};
    }
    return options;
}

Result<void> Options::check() const {
    const auto refuse = [](std::string member, std::string hint) {
        return fail(EINVAL, "check simulated device", std::move(member), std::move(hint));
    };
    if (block_size != 512 && block_size != 4096) {
        return refuse(fmt::format("lba={}", block_size), "Blocks are of 512 or 4096 bytes.");
    }
    if (size.value() < 4096 || size.value() % 4096 != 0 || size.value() > std::uint64_t{1} << 46) {
        return refuse(fmt::format("size={}", size.value()), "The size is a multiple of 4096, from 4096 to 64T.");
    }
    if (namespaces < 1 || namespaces > 1024) {
        return refuse(fmt::format("ns={}", namespaces), "There are 1 to 1024 namespaces.");
    }
    if (queues < 1 || queues > 1024) {
        return refuse(fmt::format("queues={}", queues), "There are 1 to 1024 I/O queue pairs.");
    }
    if (vectors > 2048) {
        return refuse(fmt::format("vectors={}", vectors), "MSI-X has up to 2048 vectors.");
    }
    if (mqes < 1) {
        return refuse(fmt::format("mqes={}", mqes), "The smallest queue has 2 entries: mqes=1.");
    }
    if (dstrd > 10) {
        return refuse(fmt::format("dstrd={}", dstrd), "The doorbell stride is 4 << dstrd bytes, dstrd 0 to 10.");
    }
    if (mpsmin > 15 || mpsmax > 15 || mpsmin > mpsmax) {
        return refuse(fmt::format("mpsmin={},mpsmax={}", mpsmin, mpsmax),
                      "Pages are 4 KiB << n, n from mpsmin to mpsmax, both 0 to 15.");
    }
    if (mdts > 20) {
        return refuse(fmt::format("mdts={}", mdts), "The largest transfer is 2^mdts pages, mdts 0 to 20.");
    }
    const std::uint64_t doorbells_end = 0x1000 + (std::uint64_t{queues} + 1) * 2 * (std::uint64_t{4} << dstrd);
    if (msix_table != 0 && (msix_table % 8 != 0 || msix_table < ((doorbells_end + 4095) & ~std::uint64_t{4095}) ||
                            msix_table > (std::uint64_t{1} << 24))) {
        return refuse(
            fmt::format("msix=0x{:x}", msix_table),
            fmt::format("The table lies at a multiple of 8 in a page behind the doorbells, which end at 0x{:x}.",
                        doorbells_end));
    }
    if (serial.size() > 20 || model.size() > 40 || firmware.size() > 8) {
        return refuse("serial, model, firmware", "They have up to 20, 40 and 8 characters.");
    }
    return {};
}

} // namespace upcie::sim
