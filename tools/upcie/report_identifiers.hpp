// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "output.hpp"

namespace upcie::cli {

/// Takes out of `document` what tells one machine from another of its kind: members that are a serial number, a UUID or
/// the like, and in all other text UUIDs, MAC addresses and the host's name. Names and words that belong to a schema
/// are left as they are. `host_name` may be empty.
void leave_out_identifiers(Json& document, const std::string& host_name);

/// The same for one text.
[[nodiscard]] std::string without_identifiers(const std::string& text, const std::string& host_name);

} // namespace upcie::cli
