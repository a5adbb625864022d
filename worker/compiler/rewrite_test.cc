// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/rewrite.h"

#include <iterator>

#include <absl/strings/escaping.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fairway/v1/compiler.pb.h"
#include "worker/compiler/mlir_bytecode.h"
#include "worker/compiler/pjrt_compiler.h"
#include "worker/executor/runtime/pjrt/client.h"
#include "worker/executor/runtime/pjrt/pjrt_runtime.h"
#include "worker/executor/runtime/pjrt/test_programs.h"
#include "worker/executor/runtime/pjrt/test_support.h"

namespace fairway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// jax.export of jit(lambda x: reshard(reshard(x, P(unreduced={"x"})), P())), x of four floats on a
// mesh of two devices.
constexpr char kWhole[] =
    "TUzvUg1TdGFibGVITE9fdjEuMTUuMAABIwcBBQkNAQUPEwMFFxsFBR8jA4tjEQFDBwsLCwsLDwsPIwsPCw8LDwsT"
    "CxMLDxsLCw8PDxMPDxMTAw0XExMPHw8FFQsPEwsPGwsLCwsBCxMPCw8HBQcTFwcCtgIfBRMFFQUXBQ0JCR0HAQUZ"
    "HQNBAwcVFxkbHR8FGxEFAAUdEQMJBR8RAwUFIQMDJScFIwMDKSsFJQEDLQMFLwcxMwUnBSkRBwkdDzcdAzkXBR9D"
    "HQ89HQM/FwUfKxcFIQUNCwNFAQsBAQEFA0kBAxcJHwsDRQEDTQkXAR0rAwNTDQNPQyMNAwNZDQVbXU9DHS0dLx0x"
    "HTMbAxEJAQICAQkBAgQLKQMRDxEDCwMLCQSFBQNRARMBBwRzAwEJB0EBIwMJUAEFBwRVAwsXAxcNAAEGDQMBAwEF"
    "RjUHAwEDAwVGOwkDAQMFAQYRAwsDBwsEEQMJBgMBBQEAzgQ1DwsPIRsLCwsfFSUpOREFFxcVEQspDzcLCRFidWls"
    "dGluAHNkeQB2aGxvAHVucmVhbGl6ZWRfY29udmVyc2lvbl9jYXN0AG1vZHVsZQBzaGFyZGluZ19jb25zdHJhaW50"
    "AG1lc2gAZnVuY192MQByZXR1cm5fdjEAaml0KHdob2xlKQBwcm9ncmFtLnB5AHgAcmVzaGFyZABqYXgudXNlc19z"
    "aGFwZV9wb2x5bW9ycGhpc20AbWhsby5udW1fcGFydGl0aW9ucwBtaGxvLm51bV9yZXBsaWNhcwBqaXRfd2hvbGUA"
    "c3RhYmxlaGxvLm1lc2gAYXhlcwBuYW1lAHNpemUAc2R5LnNoYXJkaW5nAGpheC5yZXN1bHRfaW5mbwByZXN1bHQA"
    "bWFpbgBwdWJsaWMACCMLBUMBBUcJC1FVV19hA0sDQw==";

// jax.export of jit(lambda x: x, out_shardings=P(None, unreduced={"x"})), x replicated.
constexpr char kIdentity[] =
    "TUzvUg1TdGFibGVITE9fdjEuMTUuMAABHwcBBQkJAQMPAwMTBQUXGwN5VQ0BNQcLCwsjCw8LDwsPCxMLEwsPGwsL"
    "Dw8PCxMLAw0TEw8XHw8FFQsPEwsPGwsLCwsBBw8LDwUHExcHAkoCHwUPBQkJBQMHCw0PERMVBRERAwAFExEBCQUV"
    "EQEFBRcDAxsdBRkDAx8hBRsBAyMDBSUDJykFHQUfEQUJHQMBHS8xBSEXMycFBSMLAQEBBQM5AQMPCQ0HAzUBHwcD"
    "NQEDPwkPAR0lAwNFDQNBOyMJAwNLDQVNT0E9HScdKR0rHS0BAgIBCQECBCkDEQsRAwcDBwkESQUBUQEJAQcENwMB"
    "CQNBARkDBVABBQcEGQMDBwMPKwAHBC0DAQYDAQUBAPoDLw8LDyEbFx0LCwsfGSUpOQUVEQsPCwkRYnVpbHRpbgBz"
    "ZHkAdmhsbwBtb2R1bGUAbWVzaABmdW5jX3YxAHJldHVybl92MQB4AGpheC51c2VzX3NoYXBlX3BvbHltb3JwaGlz"
    "bQBtaGxvLm51bV9wYXJ0aXRpb25zAG1obG8ubnVtX3JlcGxpY2FzAGppdF9fbGFtYmRhAHN0YWJsZWhsby5tZXNo"
    "AGF4ZXMAbmFtZQBzaXplAGppdCg8bGFtYmRhPikAcHJvZ3JhbS5weQBzZHkuc2hhcmRpbmcAamF4LnJlc3VsdF9p"
    "bmZvAHJlc3VsdABtYWluAHB1YmxpYwAIGwcFLwEFNwULQ0dJUVM=";

// jax.export of jit(lambda x: x, out_shardings=P(None, unreduced={"x"})), x cut by P("x").
constexpr char kSliced[] =
    "TUzvUg1TdGFibGVITE9fdjEuMTUuMAABHwcBBQkJAQMPAwMTBQUXGwOPaw0BSQcLCwsLCyMLDwsPCw8LEwsTCw8bCwsP"
    "Dw8LDw8LGw8PGw8TCwMPDxMPFxcfEwUVCw8TCw8bCwsLCwEHDwsPBQcTFwcC4gIfBQ8FCQkFBREFEwMHDxETFRcZBRUR"
    "AwAFFxEBCQUZEQEFBRsDAx8hBR0DAyMlBR8BAycDBSkDKy0FIQUjEQUJHQMBHTM1BSUVNz0dOTsFJy0JBxENPRU/Qx0L"
    "QS0JBx0Jnx0LRS1HAwUFKQkPAQUDTQEDDwkNBwNRAQsDSQEBHwcDVQEDSQsBAQEdKwMDWw0DV08jCQMDYQ0FY2VXUx0t"
    "HS8dMR0zAQICAQkBAgQpAxELEQMHAwcJBEkFAVEBDQEHBDcDAQkDQQEdAwVQAQUHBBkDAwcDDy8ABwQxAwEGAwEFAQBe"
    "BDUPCw8hGxELHQsLCx8ZJSk5ExcFFRELDwsJEWJ1aWx0aW4Ac2R5AHZobG8AbW9kdWxlAG1lc2gAZnVuY192MQByZXR1"
    "cm5fdjEAeABwcm9ncmFtLnB5ADxtb2R1bGU+AGpheC51c2VzX3NoYXBlX3BvbHltb3JwaGlzbQBtaGxvLm51bV9wYXJ0"
    "aXRpb25zAG1obG8ubnVtX3JlcGxpY2FzAGppdF9fbGFtYmRhAHN0YWJsZWhsby5tZXNoAGF4ZXMAbmFtZQBzaXplAGpp"
    "dCg8bGFtYmRhPikAc2hvdwA8c3RkaW4+AHNkeS5zaGFyZGluZwBqYXgucmVzdWx0X2luZm8AcmVzdWx0AG1haW4AcHVi"
    "bGljAAgbBwU3AQVLBQtZXV9naQ==";

// jax.export of jit(lambda x: reshard(reshard(reshard(x, P("x")), P(unreduced={"x"})), P())).
constexpr char kSlicedInside[] =
    "TUzvUg1TdGFibGVITE9fdjEuMTUuMAABIwcBBQkNAQUPEwMFFxsFBR8jA7GJEQFlCwcPCwsLCwsPCw8jCw8LDwsPCxML"
    "EwsPGwsLDw8PDxsPCxsPDxsPEwsPDw8bDw8PGwsDERcTDxMPFxcfBRULDxMLDxsLCwsLAQsTDwsPBwUHExcHAs4DBRMf"
    "FUFHCQ8FFQUXBRkFDR0NAwUbHWMFAwcZGx0fISMFHREFAAUfEQMJBSERAwUFIwMDKSsFJQMDLS8FJwEDMQMFMw01NwUp"
    "BSsRBwkdCTsVPQUdCz8tAQchha8dQ0UFLS0BBxENPRVJTR0TSy0BByEJ6x0TTy1RAwUFLx0JVRVXBR0LWS0BByFt1x0J"
    "XRVfBR0LYS0BByFV4QUxDQcDZwELAQEBCRkBBQNtAQMZCQ0HA3EBCwNpAQEfBwNnAQNpHTMDA3kNA3VlIw0DA38NBYGD"
    "dWUdNR03HTkdOxsDEQkBAgIBCQECBAspAxEPEQMLAwsJBJUFA1EDFwEHBIMDAQkHQQMnAwlQAwUHBGUDDRsDFxEAAQYR"
    "AwEDAQVGOQcDAQMDBUZTCQMBAwUFRlsLAwEDBwEGFQMLAwkLBBUDCwYDAQUBAKYFPQ8LDyEbHRELCwsLHxklKTkTBRMt"
    "FxURCykPNwsJEWJ1aWx0aW4Ac2R5AHZobG8AdW5yZWFsaXplZF9jb252ZXJzaW9uX2Nhc3QAbW9kdWxlAHNoYXJkaW5n"
    "X2NvbnN0cmFpbnQAbWVzaABmdW5jX3YxAHJldHVybl92MQBwcm9ncmFtLnB5AGppdCg8bGFtYmRhPikvcmVzaGFyZAA8"
    "bGFtYmRhPgB4ADxtb2R1bGU+AGpheC51c2VzX3NoYXBlX3BvbHltb3JwaGlzbQBtaGxvLm51bV9wYXJ0aXRpb25zAG1o"
    "bG8ubnVtX3JlcGxpY2FzAGppdF9fbGFtYmRhAHN0YWJsZWhsby5tZXNoAGF4ZXMAbmFtZQBzaXplAHNob3cAPHN0ZGlu"
    "PgBqaXQoPGxhbWJkYT4pAHNkeS5zaGFyZGluZwBqYXgucmVzdWx0X2luZm8AcmVzdWx0AG1haW4AcHVibGljAAgnDQVL"
    "AQVrDwt3e32FhwNvA3MDZQ==";

// jax.export of jit(lambda x: (device_put(device_put(x, Space.Host), Space.Device), x)), whose
// first result is put into pinned_host by out_shardings.
constexpr char kPlaced[] =
    "TUzvUg1TdGFibGVITE9fdjEuMTUuMAABIQcBBQkLAQMPAwMTBQcXGx8Dj20LATsHDwsPCyMLDwsLCxMLEwsLCw8LEwsL"
    "Dw8bCw8TCwMHDxcTBS0LCwsLDwsLEyMLCxsLCwsLEwsLCwsLAQULDwUHExsHAqYCHxEDBQURHSstBRMDBw0PEQMTAwUV"
    "EQEABRcFGQUbAwMZGwUdAwMdHwUfAQEJBR0lAQUhAwMpYQUjBSUVLzUdCTEtMwcNBUcFJx0JNy05AxcFKQUBAQ0hAz8B"
    "CwEBAQMBHSsdLR0vAwNLDQEjBwMFUVcNB0NTRUdVPR0xHTMNBUNZRVsdNR03HTkdOw0DY0cdPQsDHT8dQQUDAQkBAgIp"
    "AxEJEQMFBQUFCQRdBQFRAQsBBwRLAwEJA0EBFwMFUAEFBwQtAwULAwsjAAdHBycHAwUDAQkEBwUDAQYDAQUBALoGQzUD"
    "LQ8LDxUbFRkjISUXHTMFCx8ZJSk5ExcVHxELDwsJEWJ1aWx0aW4Ac2R5AHZobG8AbW9kdWxlAG1lc2gAZnVuY192MQBj"
    "dXN0b21fY2FsbF92MQByZXR1cm5fdjEAZW1wdHlfbWVzaAA8bW9kdWxlPgBqYXgudXNlc19zaGFwZV9wb2x5bW9ycGhp"
    "c20AbWhsby5udW1fcGFydGl0aW9ucwBtaGxvLm51bV9yZXBsaWNhcwBqaXRfX2xhbWJkYQBzdGFibGVobG8ubWVzaABh"
    "eGVzAHYAbWhsby5mcm9udGVuZF9hdHRyaWJ1dGVzAGppdCg8bGFtYmRhPikAcHJvZ3JhbS5weQAvdG1wL3N1aXRlL21r"
    "My5weQBqYXgucmVzdWx0X2luZm8AbWhsby5tZW1vcnlfa2luZABwaW5uZWRfaG9zdAByZXN1bHRbMF0Ac2R5LnNoYXJk"
    "aW5nAHJlc3VsdFsxXQBkZXZpY2UAbWFpbgBwdWJsaWMAX3hsYV9idWZmZXJfcGxhY2VtZW50AABhbm5vdGF0ZV9kZXZp"
    "Y2VfcGxhY2VtZW50AAgtCQUrAQU7BQtJTU9dXxFlZ2lBa0FBQQ==";

// jax.export of jit(lambda x: (x * 2, x + 1, x - 1)): its argument in unpinned_host, its results in
// unpinned_host, device and pinned_host.
constexpr char kPlacedThrice[] =
    "TUzvUg1TdGFibGVITE9fdjEuMTUuMAABKwcBBQkVAQMPAwMTBREXGx8jJysvMwPBmREBVwcPDwsLCw8LDw8PIwsPCwsLEw"
    "sTCwsLDwsLCxsLDw8bCw8PGwsPDxsTExMDBxcPEwU9CwsLCwsPCwsLCwsLCw8bCxcjCyMLIwsLCx8fExMTAQULDwUNEw8H"
    "HxMHAj4EHx0zBR01NwUbBR0FHxEDBQUhHTk7HUFDHUlLAwcZGx0NHw0FIxEBAAUlBScFKQMDJScFKwMDKSsFLQEBCQ8dMQ"
    "EFLwUxBTMtBwcNBakFNRU9BR0JPy0HBwsrMQU3FUUFHQlHLQcHCzU7BTkVTQUdCU8tBwcLP0UDAwuTAwMLlQMDC5cNLQNb"
    "AQUBAQsBAQEDAR07HT0dPx1BHw0BHUMLAx1FHUcFAx1JHUsDA3kNBV9jYVcjCwMHf4OHDQdlgV9jYVcdTQ0HZYVfc2FXHU"
    "8NB2WJX3VhVx1RHVMdVR8HCQAAgD8fBwkAAABADQNpYw0DaXMNA2l1AQkBAgIpAxEJKQEJCREDBQcFBQUpAwEPHQT7BQFR"
    "ARcBBwTpAwEJA0EBIwMLUAEFBwTLAxkzAwsvAAlCAQcDBwlCAwkDBwVGEQsDBQMFDQYRAwUFAQcFRhMLAwUDAw8GEwMFBQ"
    "ELBUYVCwMFAwMRBhUDBQUBDwdHA1ENAwUDCQdHA1MNAwUDDQdHA1UNAwUDERMEAwcTFRcGAwEFAQDmCFcPCxUVFRkPNQMt"
    "IR0bIyUlJRMdBQsfGSUpORczExEVGQ8ZERkfKQsPCwkRYnVpbHRpbgBzZHkAdmhsbwBtb2R1bGUAbWVzaABicm9hZGNhc3"
    "RfaW5fZGltX3YxAGN1c3RvbV9jYWxsX3YxAGNvbnN0YW50X3YxAGZ1bmNfdjEAbXVsdGlwbHlfdjEAYWRkX3YxAHN1YnRy"
    "YWN0X3YxAHJldHVybl92MQA8c3RkaW4+ADxsYW1iZGE+AG1obG8uZnJvbnRlbmRfYXR0cmlidXRlcwBlbXB0eV9tZXNoAG"
    "pheC51c2VzX3NoYXBlX3BvbHltb3JwaGlzbQBtaGxvLm51bV9wYXJ0aXRpb25zAG1obG8ubnVtX3JlcGxpY2FzAGppdF9f"
    "bGFtYmRhAHN0YWJsZWhsby5tZXNoAGF4ZXMAeABqaXQoPGxhbWJkYT4pADxtb2R1bGU+AGppdCg8bGFtYmRhPikvbXVsAG"
    "ppdCg8bGFtYmRhPikvYWRkAGppdCg8bGFtYmRhPikvc3ViAG1obG8ubWVtb3J5X2tpbmQAc2R5LnNoYXJkaW5nAHVucGlu"
    "bmVkX2hvc3QAamF4LnJlc3VsdF9pbmZvAF94bGFfYnVmZmVyX3BsYWNlbWVudAAAYW5ub3RhdGVfZGV2aWNlX3BsYWNlbW"
    "VudABkZXZpY2UAcGlubmVkX2hvc3QAcmVzdWx0WzBdAHJlc3VsdFsxXQByZXN1bHRbMl0AbWFpbgBwdWJsaWMACDkPBUMB"
    "BVkPC3d7fYuNA48DkQNnEWttb11xXV1d";

// jax.export of jit(lambda x: (x[:10], x[:8])), x of 16 floats on a mesh of four devices.
constexpr char kSlices[] =
    "TUzvUg1TdGFibGVITE9fdjEuMTUuMAABIQcBBQkLAQMPAwMTBQcXGx8DrYEVAVcHCw8LCwsLIwsPCw8LDwsTCxMLDxsL"
    "CwsPCw8LDw8PGw8bDxMLDw8PGw8LAwsTDxcXDwUhCy8vDxMLCxMTCxMLCwsvLwEHDwsPBQ8TBxMTExsHAgoEHwURFUFF"
    "BQkFEwUVBRcDBxETFRcZGwUZEQMABRsRAREFHREBBQUfAwMhIwUhAwMlJwUjAQMpAwUrLS8xBSUFJwUpEQURCQcdNwEF"
    "Kx0JOxU9BR0LPy0DBw9PWx0NQy0DBw8FdR0NRy1JAxkFLR0JTRVPBR0LUS0DBw9faR1VBQUvBQNZAQMnEQ0zA10BCwNf"
    "AQEJJwEdMR8HEQAAAAAAAAAAHwcRAQAAAAAAAAADA2kNA2tbHTMjEQMFcXUNA2FzHTUNA2F3HTcdOR07HwcRCgAAAAAA"
    "AAAfBxEIAAAAAAAAAAECAgEJAQIEKQMFEwkpA0EJKQMpCSkDIQkRAwsFDQ8dBGsFAVEBDwEHBFkDAQkDQQEfAwdQAQUH"
    "BDsDBw8DFzUABUY5BwMNAwEFRksJAw8DAQkEUwUDBQYDAQUBAFYFPQ8LFRUbIR0lBQsFCwsfGSUpORMTKRcVERMLDwsJ"
    "EWJ1aWx0aW4Ac2R5AHZobG8AbW9kdWxlAG1lc2gAc2xpY2VfdjEAZnVuY192MQByZXR1cm5fdjEAcHJvZ3JhbS5weQBq"
    "aXQoPGxhbWJkYT4pL3NsaWNlADxsYW1iZGE+ADxtb2R1bGU+AGpheC51c2VzX3NoYXBlX3BvbHltb3JwaGlzbQBtaGxv"
    "Lm51bV9wYXJ0aXRpb25zAG1obG8ubnVtX3JlcGxpY2FzAGppdF9fbGFtYmRhAHN0YWJsZWhsby5tZXNoAGF4ZXMAbmFt"
    "ZQB4AHNpemUAdgAvdG1wL3N1aXRlL21rNC5weQBqaXQoPGxhbWJkYT4pAGpheC5yZXN1bHRfaW5mbwBzZHkuc2hhcmRp"
    "bmcAcmVzdWx0WzBdAHJlc3VsdFsxXQBtYWluAHB1YmxpYwAIKwsFOwEFVwcLZ21veXsHfWNlB39jZQ==";

v1::CompileOptions On(std::initializer_list<int> devices) {
  v1::CompileOptions out = test::Spmd(static_cast<int>(devices.size()), true);
  out.clear_devices();
  for (int device : devices) out.add_devices(device);
  return out;
}

std::string Artifact(const char* text) {
  std::string out;
  EXPECT_TRUE(absl::Base64Unescape(text, &out));
  return out;
}

TEST(MlirBytecodeTest, WhatIsReadIsWrittenTheSame) {
  for (const char* text : {kWhole, kIdentity, kSliced, kSlicedInside}) {
    const std::string bytes = Artifact(text);
    const auto module = mlir::Module::Read(bytes);
    ASSERT_TRUE(module.ok()) << module.status();
    EXPECT_EQ(module->Write(module->ir()), bytes);
  }
}

TEST(MlirBytecodeTest, NumbersOfEveryLengthAreReadBack) {
  for (int bits = 0; bits < 64; ++bits) {
    for (uint64_t number : {(uint64_t{1} << bits) - 1, uint64_t{1} << bits, ~uint64_t{0} >> bits}) {
      std::string bytes;
      mlir::AppendNumber(bytes, number);
      mlir::Cursor cursor(bytes);
      EXPECT_EQ(cursor.Number(), number);
      EXPECT_TRUE(cursor.ok() && cursor.at_end()) << number;
    }
  }
}

TEST(UnreducedTest, WholeValuesThatBecomeUnreducedAreWholeAtTheOriginOnly) {
  const auto changed = RewriteForPlugin(Artifact(kWhole), On({0, 1}), true);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_THAT(*changed, HasSubstr("fairway_own_part"));
  EXPECT_THAT(*changed, HasSubstr("{devices0 = 1 : i64}"));
  // Ordinals of devices, not places in the program.
  EXPECT_THAT(RewriteForPlugin(Artifact(kWhole), On({3, 1}), true).value(),
              HasSubstr("{devices0 = 8 : i64}"));
}

TEST(UnreducedTest, EachDeviceKeepsItsSliceOfWhatWasCutByTheAxes) {
  for (const char* text : {kSliced, kSlicedInside}) {
    const auto changed = RewriteForPlugin(Artifact(text), On({3, 1}), true);
    ASSERT_TRUE(changed.ok()) << changed.status();
    for (std::string_view number : {"slices0", "slice0_1", "slice0_3"}) {
      EXPECT_THAT(*changed, HasSubstr(number));
    }
  }
  EXPECT_THAT(RewriteForPlugin(Artifact(kSlicedInside), On({3, 1}), true).value(),
              HasSubstr("{devices0 = 10 : i64, slice0_1 = 1 : i64, slice0_3 = 0 : i64, "
                        "slices0 = 2 : i64}"));
}

TEST(UnreducedTest, ThePluginTakesWhatWasMade) {
  auto compiler = MakePjrtCompiler(test::ConfigOfTests(4));
  ASSERT_TRUE(compiler.ok()) << compiler.status();
  for (const char* text : {kWhole, kIdentity, kSliced, kSlicedInside}) {
    const auto result = (*compiler)->Compile(Artifact(text), On({0, 1}));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(result->metadata.program_text(), HasSubstr("fairway_own_part"));
  }
}

// The call compares the ordinal of its device with those in the code.
TEST(UnreducedTest, CodeIsForTheDevicesThatItNames) {
  const auto client = pjrt::Client::Create(test::ConfigOfTests(4));
  ASSERT_TRUE(client.ok()) << client.status();
  const auto compiler = MakePjrtCompiler(*client);
  const auto runtime = MakePjrtRuntime(*client);
  const auto first = compiler->Compile(Artifact(kIdentity), On({0, 1}));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(first->metadata.names_devices());
  const auto refused = runtime->Load(first->code, {2, 3});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Text(refused.status()), HasSubstr("was compiled for, 0, 1: compile it for 2, 3"));

  const std::vector<float> x = {1, 2, 3, 4}, nothing(4);
  for (const std::vector<int>& devices : {std::vector{0, 1}, {2, 3}, {3, 1}}) {
    const auto compiled = compiler->Compile(Artifact(kIdentity), On({devices[0], devices[1]}));
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const auto loaded = runtime->Load(compiled->code, devices);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    std::vector<std::unique_ptr<DeviceBuffer>> shards;
    LaunchRequest request;
    request.executable = loaded->get();
    request.devices = devices;
    request.launch_id = 1;
    for (const int device : devices) {
      shards.push_back(
          runtime->FromHost(test::BlobOf(x), DType::kF32, Shape{{4}}, device, "").value());
      request.inputs.push_back({shards.back().get()});
    }
    const auto result = test::Run(*runtime, request);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(test::ReadAll<float>(*runtime, *result->outputs[0][0]).value(), x);
    EXPECT_EQ(test::ReadAll<float>(*runtime, *result->outputs[1][0]).value(), nothing);
  }
}

TEST(ResultsTest, WhatAnAxisDoesNotDivideIsReplicated) {
  auto compiler = MakePjrtCompiler(test::ConfigOfTests(4));
  ASSERT_TRUE(compiler.ok()) << compiler.status();
  const auto result = (*compiler)->Compile(Artifact(kSlices), On({0, 1, 2, 3}));
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->metadata.outputs_size(), 2);
  EXPECT_THAT(result->metadata.outputs(0).shard_dims(), ElementsAre(10));
  EXPECT_THAT(result->metadata.outputs(1).shard_dims(), ElementsAre(2));
}

TEST(PlacementTest, PlacementsArePassedThroughWhereThereIsOneMemory) {
  auto compiler = MakePjrtCompiler(test::ConfigOfTests(4));
  ASSERT_TRUE(compiler.ok()) << compiler.status();
  const auto result = (*compiler)->Compile(Artifact(kPlaced), test::OneDevice());
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->metadata.outputs_size(), 2);
  EXPECT_EQ(result->metadata.outputs(0).memory_kind(), "pinned_host");
  EXPECT_EQ(result->metadata.outputs(1).memory_kind(), "");
  EXPECT_EQ(RewriteForPlugin(Artifact(kPlaced), test::OneDevice(), false).value(),
            Artifact(kPlaced));
}

TEST(PlacementTest, BothKindsOfHostMemoryComeBackAsTheyWereAskedFor) {
  auto compiler = MakePjrtCompiler(test::ConfigOfTests(4));
  ASSERT_TRUE(compiler.ok()) << compiler.status();
  const auto result = (*compiler)->Compile(Artifact(kPlacedThrice), test::OneDevice());
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->metadata.outputs_size(), 3);
  EXPECT_EQ(result->metadata.outputs(0).memory_kind(), "unpinned_host");
  EXPECT_EQ(result->metadata.outputs(1).memory_kind(), "");
  EXPECT_EQ(result->metadata.outputs(2).memory_kind(), "pinned_host");
  v1::PjrtCode code;  // the runtime uses the memory in which the plugin puts them
  ASSERT_TRUE(code.ParseFromString(result->code));
  EXPECT_EQ(code.metadata().outputs(0).memory_kind(), "pinned_host");
}

TEST(UnreducedTest, OtherProgramsStayAsTheyAre) {
  for (const std::string& program : {test::Add("4xf32"), std::string("ML\xefR"), std::string()}) {
    EXPECT_EQ(RewriteForPlugin(program, test::OneDevice(), true).value(), program);
  }
}

TEST(UnreducedTest, AProgramWithoutTheBuiltinDialectStaysAsItIs) {
  std::string broken = Artifact(kWhole);
  const size_t at = broken.find("builtin");
  ASSERT_NE(at, std::string::npos);
  broken[at + 3] = '\0';
  EXPECT_EQ(RewriteForPlugin(broken, On({0, 1}), true).value(), broken);
}

TEST(UnreducedTest, WhatCannotBeServedIsRefusedWithTheReason) {
  // The mesh is of two devices.
  const auto other = RewriteForPlugin(Artifact(kWhole), On({0, 1, 2, 3}), true);
  EXPECT_EQ(other.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Text(other.status()), HasSubstr("the origin of the mesh axes x are not known"));
}

// Each byte is broken in one way; tests/stress breaks programs in more ways.
TEST(UnreducedTest, BrokenProgramsAreNeverTheEnd) {
  constexpr int kFlips[] = {1, 2, 0x10, 0x80, 0xff};
  for (const char* text : {kWhole, kIdentity, kSliced, kSlicedInside, kPlaced, kPlacedThrice}) {
    const std::string bytes = Artifact(text);
    for (size_t at = 0; at < bytes.size(); ++at) {
      (void)RewriteForPlugin(bytes.substr(0, at), On({0, 1}), true);
      std::string broken = bytes;
      broken[at] = static_cast<char>(broken[at] ^ kFlips[at % std::size(kFlips)]);
      (void)RewriteForPlugin(broken, On({0, 1}), true);
      (void)UnpinnedResults(broken, On({0, 1}));
    }
  }
}

}  // namespace
}  // namespace fairway
