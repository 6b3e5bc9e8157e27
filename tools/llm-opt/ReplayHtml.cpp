// The page with plots: inline SVG, no scripts.
#include "tools/llm-opt/ReplayReport.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

using namespace llmopt;
using namespace llmopt::runtime;

namespace {

std::string escaped(std::string_view text) {
  std::string safe;
  for (char c : text)
    switch (c) {
    case '<':
      safe += "&lt;";
      break;
    case '>':
      safe += "&gt;";
      break;
    case '&':
      safe += "&amp;";
      break;
    case '"':
      safe += "&quot;";
      break;
    default:
      safe += c;
    }
  return safe;
}

struct Series {
  std::string name;
  const char *color;
  std::vector<std::pair<double, double>> points;
  bool dots = false;
};

/// The least of 1, 2, 5 times a power of ten that is not below `value`.
double roundUp(double value) {
  if (!(value > 0))
    return 1;
  double unit = std::pow(10, std::floor(std::log10(value)));
  for (double factor : {1.0, 2.0, 5.0, 10.0})
    if (factor * unit >= value * (1 - 1e-12))
      return factor * unit;
  return 10 * unit;
}

class Plot {
public:
  Plot(std::string title, std::string x, std::string y, std::vector<Series> series)
      : title(std::move(title)), xLabel(std::move(x)), yLabel(std::move(y)),
        series(std::move(series)) {}

  std::string svg() const {
    double mostX = 0, mostY = 0;
    for (const Series &each : series)
      for (auto [x, y] : each.points) {
        mostX = std::max(mostX, x);
        mostY = std::max(mostY, y);
      }
    mostX = roundUp(mostX);
    mostY = roundUp(mostY);
    std::string text;
    auto out = std::back_inserter(text);
    fmt::format_to(out, "<h2>{}</h2>\n<svg viewBox='0 0 760 280' role='img'>\n", escaped(title));
    for (int i = 0; i <= 4; ++i) {
      double x = kLeft + kWidth * i / 4, y = kTop + kHeight - kHeight * i / 4;
      fmt::format_to(out,
                     "<path class='grid' d='M{0:.0f} {1}V{2}M{3} {4:.0f}H{5}'/>"
                     "<text x='{0:.0f}' y='258' class='x'>{6:.4g}</text>"
                     "<text x='{7}' y='{8:.0f}' class='y'>{9:.4g}</text>\n",
                     x, kTop, kTop + kHeight, kLeft, y, kLeft + kWidth, mostX * i / 4, kLeft - 8,
                     y + 4, mostY * i / 4);
    }
    double legend = kLeft;
    for (const Series &each : series) {
      draw(each, mostX, mostY, text);
      fmt::format_to(std::back_inserter(text), "<text x='{:.0f}' y='14' fill='{}'>{}</text>\n",
                     legend, each.color, escaped(each.name));
      legend += 9.0 * double(each.name.size()) + 24;
    }
    fmt::format_to(std::back_inserter(text),
                   "<text x='{}' y='276' class='x'>{}</text><text x='{}' y='14' class='y'>{}"
                   "</text>\n</svg>\n",
                   kLeft + kWidth / 2, escaped(xLabel), kLeft + kWidth, escaped(yLabel));
    return text;
  }

private:
  static constexpr double kLeft = 64, kTop = 24, kWidth = 680, kHeight = 216;

  static void draw(const Series &each, double mostX, double mostY, std::string &text) {
    auto out = std::back_inserter(text);
    auto place = [&](std::pair<double, double> p) {
      return std::pair(kLeft + kWidth * p.first / mostX,
                       kTop + kHeight - kHeight * p.second / mostY);
    };
    if (each.dots) {
      for (auto point : each.points) {
        auto [x, y] = place(point);
        fmt::format_to(out, "<circle cx='{:.1f}' cy='{:.1f}' r='3' fill='{}'/>", x, y, each.color);
      }
      return;
    }
    fmt::format_to(out, "<path fill='none' stroke='{}' d='", each.color);
    // One point a pixel is what can be seen.
    double lastX = -1;
    char move = 'M';
    for (auto point : each.points) {
      auto [x, y] = place(point);
      if (x - lastX < 1 && move == 'L')
        continue;
      fmt::format_to(out, "{}{:.1f} {:.1f}", move, x, y);
      move = 'L';
      lastX = x;
    }
    text += "'/>\n";
  }

  std::string title, xLabel, yLabel;
  std::vector<Series> series;
};

std::vector<Plot> plotsOf(const ReplayReport &report) {
  Series used{"held", "#c0392b", {}}, cached{"cached", "#2980b9", {}};
  Series running{"running", "#27ae60", {}}, waiting{"waiting", "#8e44ad", {}};
  for (const ReplaySample &sample : report.samples) {
    used.points.emplace_back(sample.seconds, 100 * sample.used);
    cached.points.emplace_back(sample.seconds, 100 * sample.cached);
    running.points.emplace_back(sample.seconds, sample.running);
    waiting.points.emplace_back(sample.seconds, sample.waiting);
  }
  Series good{"goodput", "#27ae60", {}, true}, all{"arrivals", "#95a5a6", {}};
  double most = 0;
  for (const ReplayReport::Window &window : report.windows) {
    good.points.emplace_back(window.rate, window.goodput);
    most = std::max(most, window.rate);
  }
  all.points = {{0, 0}, {most, most}};
  std::vector<Plot> plots;
  plots.emplace_back("Cache use over time", "s", "% of pages", std::vector{used, cached});
  plots.emplace_back("Requests over time", "s", "requests", std::vector{running, waiting});
  if (!report.windows.empty())
    plots.emplace_back("Goodput over rate, a dot for each twenty-fourth of the arrivals' time",
                       "arrivals/s", "requests/s that met both goals", std::vector{all, good});
  return plots;
}

} // namespace

std::string cli::replayHtml(const ReplayTitle &title, const ReplayReport &report) {
  std::string text = fmt::format(
      "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>\n<title>{0}</title>\n"
      "<style>body{{font:15px/1.4 system-ui,sans-serif;max-width:800px;margin:2em auto;padding:0 "
      "1em}}pre{{background:#f4f4f4;padding:1em;overflow-x:auto}}svg{{width:100%}}svg text{{"
      "font-size:12px}}.grid{{stroke:#ddd;fill:none}}.x{{text-anchor:middle}}.y{{text-anchor:"
      "end}}</style></head>\n<body><h1>{0}</h1>\n<pre>{1}</pre>\n",
      escaped(title.trace), escaped(replayText(title, report)));
  for (const Plot &plot : plotsOf(report))
    text += plot.svg();
  return text + "</body></html>\n";
}
