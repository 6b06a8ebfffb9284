// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_CURL_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_CURL_HPP

// A handle of libcurl, which connects to a server, with TLS where the URL begins with https.

#include <bide/durable/slots/detail/server/server_slot.hpp>

#include <curl/curl.h>
#include <fcntl.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The base of a client. It has at most one connection, and cannot move: libcurl has its address.
class curl_handle {
public:
    // A child of fork() closes the socket and leaks the rest: libcurl's clean-up may send the
    // server a message that ends the parent's connection.
    void drop() noexcept {
        if (handle_ != nullptr && owner_ != ::getpid()) {
            ::close(socket());
            static_cast<void>(handle_.release());
        }
        // The clean-up may write to a connection that has ended.
        without_sigpipe([this] { return std::exchange(handle_, nullptr) == nullptr; });
    }

protected:
    curl_handle() = default;
    ~curl_handle() { drop(); }

    // Makes the handle. Returns false if there is no memory.
    bool make(const tls_files& tls) {
        static const bool is_ready = ::curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
        drop();
        handle_.reset(is_ready ? ::curl_easy_init() : nullptr);
        const auto name = [this](CURLoption option, const std::string& file) {
            return file.empty() || set(option, file.c_str());
        };
        return handle_ != nullptr && set(CURLOPT_NOSIGNAL, 1L) &&
#if LIBCURL_VERSION_NUM >= 0x075700
               // At the end of its time libcurl does not wait for its thread that looks up a name.
               set(CURLOPT_QUICK_EXIT, 1L) &&
#endif
               set(CURLOPT_PROXY, "") && set(CURLOPT_TCP_KEEPALIVE, 1L) &&
               set(CURLOPT_SOCKOPTFUNCTION, &opened) && set(CURLOPT_SOCKOPTDATA, this) &&
               set(CURLOPT_ERRORBUFFER, static_cast<char*>(text_)) &&
               set(CURLOPT_SSLVERSION, long{CURL_SSLVERSION_TLSv1_2}) && // or later
               // The password of a key, so that OpenSSL does not ask for it on the terminal.
               set(CURLOPT_KEYPASSWD, "") && name(CURLOPT_CAINFO, tls.ca_file) &&
               name(CURLOPT_SSLCERT, tls.cert_file) && name(CURLOPT_SSLKEY, tls.key_file);
    }

    // Calls the function curl_easy_setopt, not the macro of the same name.
    template <class Value> bool set(CURLoption option, Value value) const noexcept {
        return (::curl_easy_setopt)(handle_.get(), option, value) == CURLE_OK;
    }

    // Connects, and sends the request if there is one.
    CURLcode perform() noexcept {
        text_[0] = '\0';
        return without_sigpipe([this] { return ::curl_easy_perform(handle_.get()); });
    }

    curl_socket_t socket() const noexcept {
        curl_socket_t fd = CURL_SOCKET_BAD;
        ::curl_easy_getinfo(handle_.get(), CURLINFO_ACTIVESOCKET, &fd);
        return fd;
    }

    // permission_denied, invalid_argument and protocol_error mean that an operator has to act.
    std::error_code error_of(CURLcode code) const noexcept {
        static constexpr std::pair<CURLcode, std::errc> meanings[] = {
            {CURLE_OPERATION_TIMEDOUT, std::errc::timed_out},
            {CURLE_OUT_OF_MEMORY, std::errc::not_enough_memory},
            {CURLE_WRITE_ERROR, std::errc::message_size}, // the client refused the answer
            {CURLE_COULDNT_RESOLVE_HOST, std::errc::host_unreachable},
            {CURLE_SEND_ERROR, std::errc::connection_reset},
            {CURLE_RECV_ERROR, std::errc::connection_reset},
            {CURLE_GOT_NOTHING, std::errc::connection_reset},
            {CURLE_PARTIAL_FILE, std::errc::connection_reset},
            {CURLE_SEND_FAIL_REWIND, std::errc::connection_reset},
            {CURLE_ABORTED_BY_CALLBACK, std::errc::connection_reset}, // opened() refused
            {CURLE_UNSUPPORTED_PROTOCOL, std::errc::protocol_error},  // the server's
            {CURLE_WEIRD_SERVER_REPLY, std::errc::protocol_error},
            {CURLE_SSL_CONNECT_ERROR, std::errc::protocol_error},
            {CURLE_PEER_FAILED_VERIFICATION, std::errc::permission_denied},
            {CURLE_SSL_ISSUER_ERROR, std::errc::permission_denied},
            {CURLE_SSL_CERTPROBLEM, std::errc::invalid_argument},
            {CURLE_SSL_CACERT_BADFILE, std::errc::invalid_argument},
            {CURLE_NOT_BUILT_IN, std::errc::function_not_supported}};
        long number = 0;
        if (code == CURLE_OK) {
            return {};
        }
        if (code == CURLE_COULDNT_CONNECT) {
            ::curl_easy_getinfo(handle_.get(), CURLINFO_OS_ERRNO, &number);
            return {number != 0 ? static_cast<int>(number) : ECONNREFUSED, std::generic_category()};
        }
        const auto* const found = std::find_if(std::begin(meanings), std::end(meanings),
                                               [&](auto& each) { return each.first == code; });
        if (found == std::end(meanings)) {
            return durable_errc::storage_error; // with libcurl's text
        }
        // Some errors differ only in libcurl's text, which comes from OpenSSL or GnuTLS.
        std::errc error = found->second;
        if (code == CURLE_SSL_CONNECT_ERROR && // the connection broke in the handshake
            says(text_, "SSL_ERROR_SYSCALL", "unexpected eof", "reset by peer",
                 "non-properly terminated", "Broken pipe")) {
            error = std::errc::connection_reset;
        }
        // With TLS 1.3 the server refuses a certificate, or the lack of one, after the handshake.
        if ((error == std::errc::connection_reset || code == CURLE_SSL_CONNECT_ERROR) &&
            says(text_, "alert") && says(text_, "ertificate", "unknown ca", "access denied")) {
            error = std::errc::permission_denied;
        }
        return std::make_error_code(error);
    }

    char text_[CURL_ERROR_SIZE] = ""; // libcurl's, about the last error
    std::unique_ptr<CURL, ended_by<&::curl_easy_cleanup>> handle_;
    bool may_open_ = true; // false: libcurl must not open a socket

private:
    static int opened(void* of, curl_socket_t fd, curlsocktype) noexcept {
        ::fcntl(fd, F_SETFD, FD_CLOEXEC);
        return static_cast<curl_handle*>(of)->may_open_ ? CURL_SOCKOPT_OK : CURL_SOCKOPT_ERROR;
    }

    const pid_t owner_ = ::getpid();
};

}}} // namespace bide::BIDE_ABI::detail

#endif
