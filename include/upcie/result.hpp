// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <tl/expected.hpp>

namespace upcie {

/// Whose number `Error::code` is.
enum class ErrorDomain : std::uint8_t {
    system, ///< an errno value, from the kernel or chosen by this library where the cause is its own
    nvme,   ///< an NVMe completion status: bits 14:0 are the CQE's status field without the phase bit
    vendor, ///< a number of a GPU runtime; `Error::code_name` carries the vendor's own name for it
};

/// Why an operation failed, for a program (domain, code) and for the person who has to mend it (the rest).
///
/// Ownership: a value, holds no reference. Threads: any.
struct Error {
    ErrorDomain domain = ErrorDomain::system;
    int code = 0;          ///< never 0 in an error that was returned
    std::string operation; ///< what was attempted, in the field's own name: "VFIO_DEVICE_BIND_IOMMUFD"
    std::string subject;   ///< on what: "/dev/vfio/devices/vfio0", "namespace 1", "queue 3"
    std::string hint;      ///< what to do about it, a whole sentence
    std::string code_name; ///< filled for ErrorDomain::vendor; otherwise derived from the code

    /// "OPERATION on SUBJECT: EBUSY (Device or resource busy). HINT"
    [[nodiscard]] std::string message() const;
    /// True for a system error with just this errno value.
    [[nodiscard]] bool is(int errno_value) const noexcept {
        return domain == ErrorDomain::system && code == errno_value;
    }
};

/// The answer of everything that can fail. No exception crosses this library's API.
template <class T>
using Result = tl::expected<T, Error>;

/// A system error ready to be returned as any Result.
[[nodiscard]] tl::unexpected<Error> fail(int errno_value, std::string operation, std::string subject, std::string hint);

/// The symbolic name of an errno value ("EBUSY"), or "errno 4711" when it has none.
[[nodiscard]] std::string errno_name(int errno_value);

} // namespace upcie
