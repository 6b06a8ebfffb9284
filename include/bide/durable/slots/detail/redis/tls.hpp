// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_TLS_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_TLS_HPP

// A TLS session by OpenSSL 1.1.1 or later, if the build has it. The component bide::durable_redis
// then defines the macro BIDE_DURABLE_OPENSSL. OpenSSL reads and writes memory only, and
// store_socket carries the bytes: OpenSSL's own sockets raise SIGPIPE and have no deadline.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slots/detail/server/server_slot.hpp>
#include <bide/durable/slots/detail/server/store_socket.hpp>
#include <bide/durable/slots/detail/server/url.hpp>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#if defined(BIDE_DURABLE_OPENSSL)
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/sslerr.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <unistd.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

#if defined(BIDE_DURABLE_OPENSSL)

// One session. The destructor sends nothing, so that a child of fork() may run it.
class redis_tls {
public:
    using made = server_answer<std::unique_ptr<redis_tls>>;

    // Makes a session with the server of this name or address.
    static redis_tls::made make(const std::string& host, const tls_files& trust) {
        ::ERR_clear_error();
        const context with(::SSL_CTX_new(::TLS_client_method()));
        if (with == nullptr) {
            return no_memory();
        }
        if (made wrong = prepare(with.get(), trust); wrong.error) {
            ::ERR_clear_error();
            return wrong;
        }
        auto session = std::make_unique<redis_tls>();
        if (!session->begin(with.get(), host)) {
            ::ERR_clear_error();
            return no_memory();
        }
        return {std::move(session)};
    }

    // Shakes hands, and verifies the server's certificate and name. After timed_out, another call
    // continues the handshake.
    std::error_code shake_hands(store_socket& over, deadline end) {
        return until_done(over, end, [this] { return ::SSL_do_handshake(ssl_.get()); });
    }

    std::error_code send(store_socket& over, std::string_view bytes, deadline end) {
        std::size_t n = 0;
        return bytes.empty() ? std::error_code() : until_done(over, end, [&] {
            return ::SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &n);
        });
    }

    result<std::size_t, std::error_code> receive(store_socket& over, char* to, std::size_t room,
                                                 deadline end) {
        std::size_t n = 0;
        const std::error_code error =
            until_done(over, end, [&] { return ::SSL_read_ex(ssl_.get(), to, room, &n); });
        if (error) {
            return unexpected{error};
        }
        return n;
    }

    // The server sends session tickets without a request. They are read here.
    bool is_quiet(store_socket& over) {
        std::error_code error;
        while (!error) {
            error = fill(over, deadline::poll());
        }
        return error == std::errc::timed_out && peek() == SSL_ERROR_WANT_READ;
    }

    // Whether the server has sent at least one byte.
    bool has_heard() const noexcept { return has_heard_; }
    // The text of the last error, or empty.
    const std::string& error_text() const noexcept { return error_text_; }

private:
    struct freer {
        void operator()(SSL* ssl) const noexcept { ::SSL_free(ssl); }
        void operator()(SSL_CTX* context) const noexcept { ::SSL_CTX_free(context); }
    };
    using context = std::unique_ptr<SSL_CTX, freer>;

    // A key with a password is refused; OpenSSL would ask for the password on the terminal.
    static int no_password(char*, int, int, void*) noexcept { return -1; }

    static redis_tls::made prepare(SSL_CTX* to, const tls_files& trust) {
        const auto wrong = [](const std::string& what, const std::string& file) {
            const int number = ::access(file.c_str(), R_OK) == 0 ? 0 : errno;
            const std::error_code error(number != 0 ? number : EINVAL, std::generic_category());
            return made{nullptr, error, false,
                        what + " " + file + ": " +
                            (number != 0 ? error.message() : queued_error_text())};
        };
        ::SSL_CTX_set_min_proto_version(to, TLS1_2_VERSION);
        ::SSL_CTX_set_options(to, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
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
        if (::SSL_CTX_use_PrivateKey_file(to, key.c_str(), SSL_FILETYPE_PEM) != 1) {
            return wrong("the key in", key);
        }
        return {};
    }

    static std::string queued_error_text() {
        const unsigned long code = ::ERR_peek_error();
        const char* const reason = ::ERR_reason_error_string(code);
        if (reason != nullptr) {
            return reason;
        }
        char text[256];
        ::ERR_error_string_n(code, text, sizeof text);
        return text;
    }

    static made no_memory() {
        return {nullptr, std::make_error_code(std::errc::not_enough_memory)};
    }
    // Whether the alert refuses the client's certificate, or the lack of one.
    static bool is_refusal(int reason) noexcept {
        switch (reason) {
        case SSL_R_SSLV3_ALERT_NO_CERTIFICATE:
        case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
        case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
        case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
        case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
        case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
        case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
        case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
        case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED: return true;
        default: return false;
        }
    }

    bool begin(SSL_CTX* from, const std::string& host) {
        ssl_.reset(::SSL_new(from));
        BIO* const in = ::BIO_new(::BIO_s_mem());
        BIO* const out = ::BIO_new(::BIO_s_mem());
        if (ssl_ == nullptr || in == nullptr || out == nullptr) {
            ::BIO_free(in);
            ::BIO_free(out);
            return false;
        }
        ::SSL_set_bio(ssl_.get(), in, out);
        from_ = in;
        to_ = out;
        ::SSL_set_connect_state(ssl_.get());

        std::string name = host.substr(0, host.find('%')); // without the zone of an address
        if (name.size() > 1 && name.back() == '.') {
            name.pop_back();
        }
        X509_VERIFY_PARAM* const checked = ::SSL_get0_param(ssl_.get());
        if (::X509_VERIFY_PARAM_set1_ip_asc(checked, name.c_str()) == 1) {
            return true; // an address is not sent as a name
        }
        ::X509_VERIFY_PARAM_set_hostflags(checked, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
        return ::X509_VERIFY_PARAM_set1_host(checked, name.c_str(), name.size()) == 1 &&
               ::SSL_set_tlsext_host_name(ssl_.get(), name.c_str()) == 1;
    }

    std::error_code flush(store_socket& over, deadline end) {
        char* bytes = nullptr;
        const long size = ::BIO_get_mem_data(to_, &bytes);
        if (size <= 0) {
            return {};
        }
        const std::error_code error =
            over.send(std::string_view(bytes, static_cast<std::size_t>(size)), end);
        static_cast<void>(BIO_reset(to_)); // a macro
        return error;
    }

    std::error_code fill(store_socket& over, deadline end) {
        char some[16 * 1024];
        const auto n = over.receive(some, sizeof some, end);
        if (!n) {
            return n.error();
        }
        has_heard_ = true;
        if (::BIO_write(from_, some, static_cast<int>(*n)) != static_cast<int>(*n)) {
            return std::make_error_code(std::errc::not_enough_memory);
        }
        return {};
    }

    // Returns the code of a failed step. Errors that last until an operator acts are
    // permission_denied and protocol_error.
    std::error_code failure(int kind) {
        if (kind == SSL_ERROR_ZERO_RETURN) { // the server closed the session
            return std::make_error_code(std::errc::connection_reset);
        }
        const long verdict = ::SSL_get_verify_result(ssl_.get());
        const int reason = ERR_GET_REASON(::ERR_peek_error());
        if (verdict != X509_V_OK) {
            error_text_ = "TLS: the server's certificate is not trusted: ";
            error_text_ += ::X509_verify_cert_error_string(verdict);
            return std::make_error_code(std::errc::permission_denied);
        }
        error_text_ = "TLS: " + queued_error_text();
        if (is_refusal(reason)) {
            error_text_ += " (the server requires a client certificate that it trusts)";
            return std::make_error_code(std::errc::permission_denied);
        }
        if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST) {
            error_text_ += " (the server does not speak TLS at this port)";
        }
        if (reason == SSL_R_TLSV1_ALERT_INTERNAL_ERROR) {
            return std::make_error_code(std::errc::resource_unavailable_try_again);
        }
        return std::make_error_code(std::errc::protocol_error);
    }

    // Looks for data of the server. Returns OpenSSL's error, or SSL_ERROR_NONE.
    int peek() noexcept {
        char one;
        ::ERR_clear_error();
        const int n = ::SSL_peek(ssl_.get(), &one, 1);
        return n > 0 ? SSL_ERROR_NONE : ::SSL_get_error(ssl_.get(), n);
    }

    // Returns why the socket cannot send: a server that closes the connection may have sent an
    // alert.
    std::error_code reason_of(store_socket& over, std::error_code unsent) {
        while (unsent != std::errc::timed_out && !fill(over, deadline::poll())) {
        }
        const int kind = peek();
        return kind == SSL_ERROR_SSL ? failure(kind) : unsent;
    }

    // Repeats a step of OpenSSL until it returns more than 0, and carries bytes between OpenSSL and
    // the socket.
    template <class Step> std::error_code until_done(store_socket& over, deadline end, Step step) {
        for (;;) {
            ::ERR_clear_error();
            const int done = step();
            const int kind = done > 0 ? SSL_ERROR_NONE : ::SSL_get_error(ssl_.get(), done);
            if (kind != SSL_ERROR_NONE && kind != SSL_ERROR_WANT_READ) {
                const std::error_code why = failure(kind);
                static_cast<void>(flush(over, end)); // sends an alert
                return why;
            }
            if (const std::error_code unsent = flush(over, end)) {
                return reason_of(over, unsent);
            }
            if (done > 0) {
                return {};
            }
            if (const std::error_code error = fill(over, end)) {
                return error;
            }
        }
    }

    std::unique_ptr<SSL, freer> ssl_;
    BIO* from_ = nullptr; // bytes received from the socket; owned by ssl_
    BIO* to_ = nullptr;   // bytes to send to the socket; owned by ssl_
    bool has_heard_ = false;
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
    std::error_code shake_hands(store_socket&, deadline) { return {}; }
    std::error_code send(store_socket& over, std::string_view bytes, deadline end) {
        return over.send(bytes, end);
    }
    result<std::size_t, std::error_code> receive(store_socket& over, char* to, std::size_t room,
                                                 deadline end) {
        return over.receive(to, room, end);
    }
    bool is_quiet(store_socket& over) { return over.is_quiet(); }
    bool has_heard() const noexcept { return false; }
    std::string error_text() const { return {}; }
};

#endif

}}} // namespace bide::BIDE_ABI::detail

#endif
