package server

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seaofsimulation/sos"
)

// Stats gives numbers of other rooms to /metrics. Samples is called for each
// scrape and must not wait for sandboxes. The set of names and label values must
// be bounded: never an id, a name or a path.
type Stats interface {
	Samples(ctx context.Context) []Sample
}

// Sample is one number at one moment.
type Sample struct {
	Name    string // without the prefix sos_
	Help    string
	Counter bool // it only grows; else a gauge
	Value   float64
	Labels  map[string]string
	// Buckets makes it a histogram: how many were at most each bound. Value is
	// then the sum and Count the number of all.
	Buckets map[float64]uint64
	Count   uint64
}

// metrics is the server's own registry: nothing global.
type metrics struct {
	handler  http.Handler
	inFlight prometheus.Gauge
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(svc sos.Service, stats Stats) *metrics {
	reg := prometheus.NewRegistry()
	m := &metrics{
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "sos_http_requests_in_flight", Help: "HTTP requests being answered."}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sos_http_requests_total", Help: "HTTP requests by route, method and status."},
			[]string{"route", "method", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "sos_http_request_seconds", Help: "Time to answer HTTP requests by route.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 5, 30, 300}}, []string{"route"}),
	}
	reg.MustRegister(m.inFlight, m.requests, m.seconds, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &serviceCollector{svc: svc, stats: stats})
	m.handler = promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
	return m
}

// observe counts a request under the pattern of its route, never its path.
func (m *metrics) observe(r *http.Request, status int, took time.Duration) {
	route, method := r.Pattern, r.Method
	if route == "" || route == "/" {
		route = "none"
	}
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete, http.MethodPut, http.MethodPatch, http.MethodOptions:
	default:
		method = "other"
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}

// serviceCollector asks the service when it is scraped. It describes nothing
// beforehand, because what Stats gives may change.
type serviceCollector struct {
	svc   sos.Service
	stats Stats
}

func (c *serviceCollector) Describe(chan<- *prometheus.Desc) {}

func (c *serviceCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	emit := func(s Sample) {
		var names, values []string
		for k, v := range s.Labels {
			names, values = append(names, k), append(values, v)
		}
		desc := prometheus.NewDesc("sos_"+s.Name, s.Help, names, nil)
		var metric prometheus.Metric
		var err error
		switch {
		case s.Buckets != nil:
			metric, err = prometheus.NewConstHistogram(desc, s.Count, s.Value, s.Buckets, values...)
		case s.Counter:
			metric, err = prometheus.NewConstMetric(desc, prometheus.CounterValue, s.Value, values...)
		default:
			metric, err = prometheus.NewConstMetric(desc, prometheus.GaugeValue, s.Value, values...)
		}
		if err != nil {
			metric = prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		}
		out <- metric
	}
	if info, err := c.svc.Info(ctx); err == nil {
		emit(Sample{Name: "healthy", Help: "1 when the driver can run sandboxes.", Value: bit(info.Healthy)})
		emit(Sample{Name: "sandboxes_max", Help: "Sandboxes that may run at once.", Value: float64(info.MaxSandboxes)})
		emit(Sample{Name: "sandboxes_running", Help: "Sandboxes that hold a place.", Value: float64(info.Running)})
		emit(Sample{Name: "sandboxes_queued", Help: "Starts that wait for a place.", Value: float64(info.Queued)})
		emit(Sample{Name: "build_info", Help: "Always 1.", Value: 1, Labels: map[string]string{"version": info.Version, "driver": info.Driver}})
	}
	if all, err := c.svc.ListSandboxes(ctx, sos.SandboxFilter{}); err == nil {
		count := map[sos.Status]int{}
		for i := range all {
			count[all[i].Status]++
		}
		for status, n := range count {
			emit(Sample{Name: "sandboxes", Help: "Sandboxes by status.", Value: float64(n), Labels: map[string]string{"status": string(status)}})
		}
	}
	if c.stats == nil {
		return
	}
	for _, s := range c.stats.Samples(ctx) {
		emit(s)
	}
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
