// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include "host_facts.hpp"

/// What to do about what is missing: said in one place, so that `list` and `doctor` say the same.
namespace upcie::cli::advice {

[[nodiscard]] std::string turn_iommu_on(const HostFacts& host);
[[nodiscard]] std::string get_module(std::string_view module);
[[nodiscard]] std::string get_dev_iommu(const HostFacts& host);
[[nodiscard]] std::string give_node(const std::string& node);
[[nodiscard]] std::string turn_noiommu_on(const HostFacts& host);
[[nodiscard]] std::string reserve_hugepages();
[[nodiscard]] std::string raise_memlock();

} // namespace upcie::cli::advice
