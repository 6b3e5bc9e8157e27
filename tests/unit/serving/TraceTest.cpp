// The formats, told from the content, and what is refused with file, line and a way out.
#include "runtime/trace/Trace.h"
#include "tests/support/TestData.h"
#include "tests/unit/serving/TraceFiles.h"

#include <algorithm>
#include <set>

using namespace llmopt;
using namespace llmopt::runtime;

namespace {

using Traces = test::TraceFiles;

constexpr std::string_view kMooncake =
    "{\"timestamp\": 1000, \"input_length\": 700, \"output_length\": 5, \"hash_ids\": [0, 1]}\n"
    "{\"timestamp\": 4000, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [0]}\n";

constexpr std::string_view kRates = "client,time_s,rate_per_s,cv,family,arg1,arg2\n"
                                    "7,0,0,0,,0,0\n"
                                    "7,600,0.5,1,Gamma,1.0,2.0\n"
                                    "9,600,0.5,1,Gamma,1.0,2.0\n"
                                    "7,1200,0.5,1,Weibull,1.5,2.0\n";
constexpr std::string_view kLengths =
    "{\"7\": {\"0\": {\"input_tokens\": {\"10\": 0.5, \"20\": 0.5}, \"output_tokens\": {\"3\": "
    "1.0}, \"reason_ratio\": {}}}}";

std::string messageOf(const StatusOr<Trace> &trace) { return trace.status().message(); }

} // namespace

TEST_F(Traces, BlankLinesAreNoRequestsInAnyFormat) {
  auto blanked = [&](const char *name, std::string_view text) {
    std::string all;
    for (char c : text)
      all += c == '\n' ? "\n\n" : std::string(1, c);
    return write(name, all + "\r\n");
  };
  auto requests = [](const std::string &path, const TraceOptions &options = {}) {
    StatusOr<Trace> trace = readTrace(path, options);
    EXPECT_TRUE(trace.ok()) << trace.status().toString();
    return trace.ok() ? trace->requests.size() : 0;
  };
  EXPECT_EQ(requests(blanked("a.jsonl", kMooncake)), 2u);
  std::string azure = blanked("azure.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                           "2023-11-16 18:15:46,12,3\n2023-11-16 18:15:47,4,5\n");
  EXPECT_EQ(requests(azure), 2u);
  TraceOptions one;
  one.limit = 1;
  EXPECT_EQ(requests(azure, one), 1u);
  EXPECT_EQ(requests(blanked("arxiv.csv", "num_prefill_tokens,num_decode_tokens,num_total_tokens,"
                                          "pd_ratio\n10,3,13,3.3\n20,4,24,5\n")),
            2u);
  TraceOptions pair;
  pair.partner = write("lengths.json", kLengths);
  EXPECT_EQ(requests(blanked("rates.csv", kRates), pair),
            requests(write("plain.csv", kRates), pair));
}

TEST_F(Traces, MooncakeTimesAreMillisecondsFromTheFirstRequest) {
  StatusOr<Trace> trace = readTrace(write("a.jsonl", kMooncake));
  ASSERT_TRUE(trace.ok()) << trace.status().toString();
  EXPECT_EQ(trace->format, TraceFormat::Mooncake);
  EXPECT_EQ(trace->blockTokens, 512);
  ASSERT_EQ(trace->requests.size(), 2u);
  EXPECT_EQ(trace->requests[0].arrivalNs, 0);
  EXPECT_EQ(trace->requests[1].arrivalNs, 3'000'000'000);
  EXPECT_EQ(trace->requests[0].promptTokens, 700);
  EXPECT_EQ(trace->requests[0].outputTokens, 5);
  EXPECT_EQ(trace->blocksOf(trace->requests[0]).size(), 2u);
}

TEST_F(Traces, GzipIsReadAsThePlainFile) {
  StatusOr<Trace> plain = readTrace(write("a.jsonl", kMooncake));
  StatusOr<Trace> zipped = readTrace(writeGzip("a.bin", kMooncake));
  ASSERT_TRUE(plain.ok() && zipped.ok());
  EXPECT_EQ(plain->blocks, zipped->blocks);
  EXPECT_EQ(plain->requests.size(), zipped->requests.size());
}

TEST_F(Traces, EqualBlockIdsAreEqualTokensAndAnswersAreUnique) {
  StatusOr<Trace> trace = readTrace(write("a.jsonl", kMooncake));
  ASSERT_TRUE(trace.ok());
  std::vector<uint32_t> a(700), b(512);
  writePrompt(*trace, 0, a);
  writePrompt(*trace, 1, b);
  EXPECT_TRUE(std::equal(b.begin(), b.end(), a.begin()));
  EXPECT_EQ(a[511], blockToken(0, 511));
  EXPECT_EQ(a[512], blockToken(1, 0));
  EXPECT_EQ(std::set<uint32_t>(a.begin(), a.end()).size(), 700u);
  EXPECT_NE(outputToken(0, 0), outputToken(1, 0));
  EXPECT_LT(*std::max_element(a.begin(), a.end()), 1u << 31);
}

TEST_F(Traces, AzureReadsTheWallClockToAHundredNanoseconds) {
  StatusOr<Trace> trace = readTrace(write("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                                                   "2023-11-16 23:59:59.9999999,374,44\r\n"
                                                   "2023-11-17 00:00:01.0000001,396,109\r\n"));
  ASSERT_TRUE(trace.ok()) << trace.status().toString();
  EXPECT_EQ(trace->format, TraceFormat::Azure);
  EXPECT_EQ(trace->requests[1].arrivalNs, 1'000'000'200);
  EXPECT_EQ(trace->requests[1].promptTokens, 396);
  EXPECT_EQ(trace->requests[1].outputTokens, 109);
  std::vector<uint32_t> a(374), b(396);
  writePrompt(*trace, 0, a);
  writePrompt(*trace, 1, b);
  EXPECT_NE(a[0], b[0]) << "prompts without ids share nothing";
}

TEST_F(Traces, RequestsAreSortedByArrivalAndTiesKeepTheirOrder) {
  StatusOr<Trace> trace = readTrace(write("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                                   "2023-11-16 00:00:02,1,1\n"
                                                   "2023-11-16 00:00:01,2,1\n"
                                                   "2023-11-16 00:00:02,3,1\n"));
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(trace->requests[0].promptTokens, 2);
  EXPECT_EQ(trace->requests[1].promptTokens, 1);
  EXPECT_EQ(trace->requests[2].promptTokens, 3);
}

TEST_F(Traces, ArxivArrivesAllAtOnceOrAtTheGivenRate) {
  std::string text = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n";
  for (int i = 0; i < 2000; ++i)
    text += "3772,54,3826,69.85\n";
  std::string path = write("a.csv", text);
  StatusOr<Trace> atOnce = readTrace(path);
  ASSERT_TRUE(atOnce.ok()) << atOnce.status().toString();
  EXPECT_EQ(atOnce->requests.back().arrivalNs, 0);
  TraceOptions options;
  options.ratePerSecond = 4;
  StatusOr<Trace> spread = readTrace(path, options);
  ASSERT_TRUE(spread.ok());
  // 2,000 gaps of mean 1/4 s: 500 s with a deviation of 500/sqrt(2000) = 11 s.
  EXPECT_NEAR(double(spread->requests.back().arrivalNs) * 1e-9, 500, 6 * 11.2);
  options.seed = 1;
  StatusOr<Trace> other = readTrace(path, options);
  EXPECT_NE(other->requests.back().arrivalNs, spread->requests.back().arrivalNs);
}

TEST_F(Traces, ServeGenIsSampledFromEitherFileOfThePair) {
  std::string rates = write("x_client_rates.csv", kRates);
  std::string lengths = write("x_length_pdfs_top5.json", kLengths);
  StatusOr<Trace> a = readTrace(rates), b = readTrace(lengths);
  ASSERT_TRUE(a.ok()) << a.status().toString();
  ASSERT_TRUE(b.ok()) << b.status().toString();
  ASSERT_EQ(a->requests.size(), b->requests.size());
  EXPECT_EQ(a->format, TraceFormat::ServeGen);
  // Client 9 has no lengths: the requests are client 7's, in two windows of 600 s with
  // gaps of mean 2 s (Gamma) and 2 x Gamma(1 + 1/1.5) = 1.805 s (Weibull): 300 and 332.
  EXPECT_NEAR(double(a->requests.size()), 632, 6 * 25.2);
  for (size_t i = 0; i < a->requests.size(); ++i) {
    EXPECT_EQ(a->requests[i].arrivalNs, b->requests[i].arrivalNs);
    EXPECT_TRUE(a->requests[i].promptTokens == 10 || a->requests[i].promptTokens == 20);
    EXPECT_EQ(a->requests[i].outputTokens, 3);
  }
  TraceOptions options;
  options.seed = 5;
  EXPECT_NE(readTrace(rates, options)->requests[0].arrivalNs +
                readTrace(rates, options)->requests[1].arrivalNs,
            a->requests[0].arrivalNs + a->requests[1].arrivalNs);
  options.limit = 10;
  EXPECT_EQ(readTrace(rates, options)->requests.size(), 10u);
}

TEST_F(Traces, AServeGenFileWithoutItsPartnerSaysHowToNameIt) {
  std::string rates = write("lonely_client_rates.csv", kRates);
  EXPECT_EQ(messageOf(readTrace(rates)),
            rates + ": a ServeGen trace is a pair of files, and 0 files beside it hold its "
                    "lengths; name the other file with --partner");
  TraceOptions options;
  options.partner = write("other.json", kLengths);
  EXPECT_TRUE(readTrace(rates, options).ok());
}

TEST_F(Traces, MalformedLinesAreRefusedWithFileLineAndWhatIsAllowed) {
  struct Case {
    std::string_view text;
    std::string_view message; ///< after "FILE:"
  };
  const Case cases[] = {
      {"hello\n", "1: the line begins with 'hello'; a trace is JSON lines of Mooncake or ShareGPT, "
                  "or CSV of Azure (TIMESTAMP,ContextTokens,GeneratedTokens), arXiv "
                  "(num_prefill_tokens,num_decode_tokens) or ServeGen (client,time_s,rate_per_s)"},
      {"{\"timestamp\": 0, \"input_length\": 3}\n",
       "1: output_length is missing; each request has it"},
      {"{\"timestamp\": 0, \"input_length\": -3, \"output_length\": 1, \"hash_ids\": [1]}\n",
       "1: input_length is -3; an integer from 0 to 2147483647 is allowed"},
      {"{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 1e3, \"hash_ids\": [1]}\n",
       "1: output_length is 1000.0; an integer from 0 to 2147483647 is allowed"},
      {"{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 1, \"hash_ids\": [1, 2]}\n",
       "1: hash_ids has 2 ids; 3 tokens in blocks of 512 have 1"},
      {"{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 1, \"hash_ids\": [\"x\"]}\n",
       "1: hash_ids has \"x\"; ids are integers of 0 or more"},
      {"{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 1, \"hash_ids\": [1]}\n{oops\n",
       "2: column 2: invalid JSON: syntax error while parsing object key - invalid literal; last "
       "read: '{o'; expected string literal; each line is one request"},
      {"{\"timestamp\": 0, \"input_length\": 1e400}\n",
       "1: column 34: invalid JSON: the number 1e400 is too large; up to 1.8e308 are allowed; each "
       "line is one request"},
      {"TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n",
       "2: TIMESTAMP is 'yesterday'; 'YYYY-MM-DD HH:MM:SS.fraction' is expected"},
      {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-30 00:00:00,1,2\n",
       "2: TIMESTAMP is '2023-02-30 00:00:00'; 'YYYY-MM-DD HH:MM:SS.fraction' is expected"},
      {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-03 00:00:00,1,2x\n",
       "2: GeneratedTokens is '2x'; an integer from 0 to 2147483647 is allowed"},
      {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-03 00:00:00,1\n",
       "2: '2023-02-03 00:00:00,1' has not the three fields "
       "TIMESTAMP,ContextTokens,GeneratedTokens"},
  };
  for (const Case &each : cases) {
    std::string path = write("bad", each.text);
    StatusOr<Trace> trace = readTrace(path);
    EXPECT_FALSE(trace.ok());
    EXPECT_EQ(trace.status().code(), StatusCode::DataLoss);
    EXPECT_EQ(messageOf(trace), path + ":" + std::string(each.message));
  }
}

TEST_F(Traces, TruncatedGzipEmptyFileMissingFileAndFolder) {
  std::string text;
  for (int i = 0; i < 3000; ++i)
    text += kMooncake;
  std::string path = writeGzip("cut.gz", text);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  StatusOr<Trace> cut = readTrace(path);
  EXPECT_EQ(cut.status().code(), StatusCode::DataLoss);
  EXPECT_NE(messageOf(cut).find("the gzip stream is damaged or cut short"), std::string::npos)
      << messageOf(cut);
  EXPECT_EQ(messageOf(readTrace(write("empty", ""))),
            (folder / "empty").string() + ": the file is empty; a trace has at least one request");
  EXPECT_EQ(readTrace(folder / "missing").status().code(), StatusCode::NotFound);
  EXPECT_EQ(readTrace(folder).status().code(), StatusCode::InvalidArgument);
}

TEST_F(Traces, OptionsThatDoNotFitTheFormatAreRefused) {
  TraceOptions rate;
  rate.ratePerSecond = 2;
  EXPECT_EQ(readTrace(write("a", kMooncake), rate).status().code(), StatusCode::InvalidArgument);
  TraceOptions partner;
  partner.partner = "other";
  EXPECT_EQ(readTrace(write("b", kMooncake), partner).status().code(), StatusCode::InvalidArgument);
}

// Figures that the data's README gives: requests, and full blocks where it has ids.
TEST(RealTraces, HaveTheRequestsAndBlocksThatTheirDescriptionSays) {
  LLMOPT_NEEDS_TEST_DATA();
  struct Case {
    const char *name;
    TraceFormat format;
    size_t requests, blocks;
  };
  const Case cases[] = {
      {"mooncake_conversation_first5000.jsonl.gz", TraceFormat::Mooncake, 5000, 129968},
      {"mooncake_synthetic_all3993.jsonl.gz", TraceFormat::Mooncake, 3993, 121877},
      {"azure2023_conv_first5000.csv.gz", TraceFormat::Azure, 5000, 0},
      {"azure2023_code_first5000.csv.gz", TraceFormat::Azure, 5000, 0},
      {"sharegpt_llama3.1_300_blocks16.jsonl.gz", TraceFormat::ShareGpt, 300, 16225},
      {"arxiv_summarization_llama2tok_first5000.csv.gz", TraceFormat::Arxiv, 5000, 0},
      {"servegen_deepseek-r1_client_rates.csv.gz", TraceFormat::ServeGen, kServeGenRequests, 0},
  };
  for (const Case &each : cases) {
    StatusOr<Trace> trace = readTrace(test::dataFolder() / "traces" / each.name);
    ASSERT_TRUE(trace.ok()) << trace.status().toString();
    EXPECT_EQ(trace->format, each.format) << each.name;
    EXPECT_EQ(trace->requests.size(), each.requests) << each.name;
    EXPECT_EQ(trace->blocks.size(), each.blocks) << each.name;
    EXPECT_TRUE(std::is_sorted(
        trace->requests.begin(), trace->requests.end(),
        [](const TraceRequest &a, const TraceRequest &b) { return a.arrivalNs < b.arrivalNs; }));
  }
}
