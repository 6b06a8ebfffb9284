// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_TLS_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_TLS_HPP

// A TLS session by OpenSSL 1.1.1 or later, if the build has it. The component bide::durable_redis
// then defines the macro BIDE_DURABLE_OPENSSL. (hiredis has TLS from 1.0 on.) The socket does not
// block; if a step cannot go on, the caller waits for the socket and repeats it.

#include <bide/core/config.hpp>
#include <bide/durable/slots/detail/server/server_slot.hpp>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include <poll.h>
#include <unistd.h>

#if defined(BIDE_DURABLE_OPENSSL)
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/sslerr.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The result of a step: done, or the event to wait for, or the error.
struct tls_step {
    std::size_t count = 0; // bytes
    short wanted = 0;
    std::error_code error{};
};

#if defined(BIDE_DURABLE_OPENSSL)

// One session. The destructor sends nothing, so that a child of fork() may run it.
class redis_tls {
public:
    using made = server_answer<std::unique_ptr<redis_tls>>;

    // Makes a session. A missing file is found here, before a socket is opened.
    static redis_tls::made make(const std::string& host, const tls_files& trust) {
        ::ERR_clear_error();
        const std::unique_ptr<SSL_CTX, freer> with(::SSL_CTX_new(::TLS_client_method()));
        auto session = std::make_unique<redis_tls>();
        if (with == nullptr) {
            return {nullptr, std::make_error_code(std::errc::not_enough_memory)};
        }
        if (made wrong = prepare(with.get(), trust); wrong.error) {
            return wrong;
        }
        session->ssl_.reset(::SSL_new(with.get()));
        if (session->ssl_ == nullptr || !session->expect(host)) {
            return {nullptr, std::make_error_code(std::errc::not_enough_memory)};
        }
        return {std::move(session)};
    }

    // Shakes hands over the socket, and verifies the server's certificate and name.
    tls_step shake_hands(int fd) {
        if (::SSL_get_fd(ssl_.get()) < 0) {
            ::SSL_set_fd(ssl_.get(), fd);
        }
        return step([&](std::size_t&) { return ::SSL_connect(ssl_.get()); });
    }
    tls_step write(const char* from, std::size_t size) {
        return step([&](std::size_t& n) { return ::SSL_write_ex(ssl_.get(), from, size, &n); });
    }
    tls_step read(char* to, std::size_t room) {
        return step([&](std::size_t& n) { return ::SSL_read_ex(ssl_.get(), to, room, &n); });
    }
    // Whether there is nothing to read. Reads the session tickets, which the server sends unasked.
    bool is_quiet() {
        char one;
        const tls_step looked =
            step([&](std::size_t& n) { return ::SSL_peek_ex(ssl_.get(), &one, 1, &n); });
        return looked.wanted == POLLIN;
    }

    // The text of the last error, or empty.
    const std::string& error_text() const noexcept { return error_text_; }

private:
    struct freer {
        void operator()(SSL* ssl) const noexcept { ::SSL_free(ssl); }
        void operator()(SSL_CTX* context) const noexcept { ::SSL_CTX_free(context); }
    };

    // A key with a password is refused; OpenSSL would ask for the password on the terminal.
    static int no_password(char*, int, int, void*) noexcept { return -1; }

    static redis_tls::made prepare(SSL_CTX* to, const tls_files& trust) {
        const auto wrong = [](const std::string& what, const std::string& file) {
            const int number = ::access(file.c_str(), R_OK) == 0 ? 0 : errno;
            const std::error_code error(number != 0 ? number : EINVAL, std::generic_category());
            return made{nullptr, error, false,
                        what + " " + file + ": " + (number != 0 ? error.message() : queued())};
        };
        ::SSL_CTX_set_min_proto_version(to, TLS1_2_VERSION);
        ::SSL_CTX_set_options(to, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
        ::SSL_CTX_set_mode(to, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        ::SSL_CTX_set_verify(to, SSL_VERIFY_PEER, nullptr);
        ::SSL_CTX_set_default_passwd_cb(to, &no_password);
        if (trust.ca_file.empty()) {
            ::SSL_CTX_set_default_verify_paths(to); // if that fails, no certificate is trusted
        } else if (::SSL_CTX_load_verify_locations(to, trust.ca_file.c_str(), nullptr) != 1) {
            return wrong("the authorities in", trust.ca_file);
        }
        if (trust.cert_file.empty()) {
            return {};
        }
        if (::SSL_CTX_use_certificate_chain_file(to, trust.cert_file.c_str()) != 1) {
            return wrong("the certificate in", trust.cert_file);
        }
        const std::string& key = trust.key_file.empty() ? trust.cert_file : trust.key_file;
        return ::SSL_CTX_use_PrivateKey_file(to, key.c_str(), SSL_FILETYPE_PEM) == 1
                   ? made()
                   : wrong("the key in", key);
    }

    // Returns the text of OpenSSL's last error.
    static std::string queued() {
        char text[256];
        const char* const reason = ::ERR_reason_error_string(::ERR_peek_error());
        ::ERR_error_string_n(::ERR_peek_error(), text, sizeof text);
        return reason != nullptr ? reason : text;
    }

    // Accepts only a certificate for this name or address.
    bool expect(const std::string& host) {
        std::string name = host.substr(0, host.find('%')); // without the zone of an address
        if (name.size() > 1 && name.back() == '.') {
            name.pop_back();
        }
        X509_VERIFY_PARAM* const checked = ::SSL_get0_param(ssl_.get());
        if (::X509_VERIFY_PARAM_set1_ip_asc(checked, name.c_str()) == 1) {
            return true; // an address is not sent as a name
        }
        ::ERR_clear_error();
        ::X509_VERIFY_PARAM_set_hostflags(checked, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
        return ::X509_VERIFY_PARAM_set1_host(checked, name.c_str(), name.size()) == 1 &&
               ::SSL_set_tlsext_host_name(ssl_.get(), name.c_str()) == 1;
    }

    template <class Call> tls_step step(Call call) {
        const no_sigpipe guard;
        std::size_t count = 0;
        errno = 0;
        ::ERR_clear_error();
        const int done = call(count);
        if (done > 0) {
            return {count};
        }
        const int number = errno;
        switch (const int kind = ::SSL_get_error(ssl_.get(), done)) {
        case SSL_ERROR_WANT_READ: return {0, POLLIN};
        case SSL_ERROR_WANT_WRITE: return {0, POLLOUT};
        case SSL_ERROR_SYSCALL:
        case SSL_ERROR_ZERO_RETURN: // the server closed the session
            return {0,
                    0,
                    {number != 0 && kind == SSL_ERROR_SYSCALL ? number : ECONNRESET,
                     std::generic_category()}};
        default: return {0, 0, refusal()};
        }
    }

    // Returns the code of a refusal, and sets its text. Errors that last until an operator acts are
    // permission_denied and protocol_error.
    std::error_code refusal() {
        const long verdict = ::SSL_get_verify_result(ssl_.get());
        if (verdict != X509_V_OK) {
            error_text_ = "TLS: the server's certificate is not trusted: ";
            error_text_ += ::X509_verify_cert_error_string(verdict);
            return std::make_error_code(std::errc::permission_denied);
        }
        error_text_ = "TLS: " + queued();
        switch (ERR_GET_REASON(::ERR_peek_error())) {
        case SSL_R_SSLV3_ALERT_NO_CERTIFICATE:
        case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
        case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
        case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
        case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
        case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
        case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
        case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
        case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
            error_text_ += " (the server requires a client certificate that it trusts)";
            return std::make_error_code(std::errc::permission_denied);
        case SSL_R_WRONG_VERSION_NUMBER:
        case SSL_R_HTTP_REQUEST:
            error_text_ += " (the server does not speak TLS at this port)";
            break;
#if defined(SSL_R_UNEXPECTED_EOF_WHILE_READING)
        case SSL_R_UNEXPECTED_EOF_WHILE_READING: // OpenSSL 3: the connection ended
            error_text_.clear();
            return std::make_error_code(std::errc::connection_reset);
#endif
        case SSL_R_TLSV1_ALERT_INTERNAL_ERROR:
            return std::make_error_code(std::errc::resource_unavailable_try_again);
        default: break;
        }
        return std::make_error_code(std::errc::protocol_error);
    }

    std::unique_ptr<SSL, freer> ssl_;
    std::string error_text_;
};

#else

// Without OpenSSL there is no session, and only make() is called.
class redis_tls {
public:
    static server_answer<std::unique_ptr<redis_tls>> make(const std::string&, const tls_files&) {
        return {nullptr, std::make_error_code(std::errc::function_not_supported), false,
                "TLS: this program was built without OpenSSL"};
    }
    tls_step shake_hands(int) { return {}; }
    tls_step write(const char*, std::size_t) { return {}; }
    tls_step read(char*, std::size_t) { return {}; }
    bool is_quiet() { return false; }
    std::string error_text() const { return {}; }
};

#endif

}}} // namespace bide::BIDE_ABI::detail

#endif
