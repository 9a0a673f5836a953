/// Two pairs of Ed25519 keys for tests, as OpenSSL wrote them. They sign nothing but what tests make.
#pragma once

namespace kernelwright::test {

inline constexpr const char* kSigningPem =
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEIKyPzq+Mqj1w1tZmDhs3jbysIUefXPUD47M5/oBEKjlq\n"
    "-----END PRIVATE KEY-----\n";
inline constexpr const char* kPublicPem =
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VwAyEAmkwHR7WcNq8b3fEy/rmCQYRfG6vTthCo/dtyMkAA6Y4=\n"
    "-----END PUBLIC KEY-----\n";
inline constexpr const char* kOtherSigningPem =
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEIAtvEXcF9zLpCuj9mVyCLcp9DgjI7homEZViOxW8uNIh\n"
    "-----END PRIVATE KEY-----\n";
inline constexpr const char* kOtherPublicPem =
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VwAyEA/52vzDajA+CJD3j1LiGJ+3sm5NUIyp8Gu81z8gCgWbA=\n"
    "-----END PUBLIC KEY-----\n";

}  // namespace kernelwright::test
