package metrics

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/culvert-net/culvert/internal/agent"
)

// exposition writes metrics in Prometheus' text format. A node with 10,000 SIDs and policies has
// 80,000 series: a registry would make an object of each, and sort them, at each scrape.
type exposition struct {
	bytes.Buffer
	number []byte
}

// family writes the samples of a family, with its header before the first one.
func (x *exposition) family(f *family, r *reading) {
	first := true
	f.read(r, func(value float64, labels ...string) {
		if first {
			x.header(f)
			first = false
		}
		x.sample(f, value, labels)
	})
}

var helpEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`)

func (x *exposition) header(f *family) {
	kind := "gauge"
	if f.kind == prometheus.CounterValue {
		kind = "counter"
	}
	x.WriteString("# HELP " + f.name + " " + helpEscapes.Replace(f.help) + "\n# TYPE " + f.name + " " + kind + "\n")
}

// sample is one line, whose labels are in alphabetical order.
func (x *exposition) sample(f *family, value float64, labels []string) {
	x.WriteString(f.name)
	for i, at := range f.order {
		x.WriteByte("{,"[min(i, 1)])
		x.WriteString(f.labels[at])
		x.WriteString(`="`)
		x.label(labels[at])
		x.WriteByte('"')
	}
	if len(f.order) > 0 {
		x.WriteByte('}')
	}
	x.WriteByte(' ')
	x.number = strconv.AppendFloat(x.number[:0], value, 'g', -1, 64)
	x.Write(x.number)
	x.WriteByte('\n')
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func (x *exposition) label(value string) {
	if strings.ContainsAny(value, "\\\n\"") {
		value = labelEscapes.Replace(value)
	}
	x.WriteString(value)
}

// orderOf are the labels' places in alphabetical order.
func orderOf(labels []string) []int {
	order := make([]int, len(labels))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(labels[a], labels[b]) })
	return order
}

// textHandler serves the agent's metrics, and behind them those of the process.
type textHandler struct {
	agent   *agent.Agent
	process http.Handler
}

func (h textHandler) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var x exposition
	r, err := read(h.agent)
	for i := range families {
		x.family(&families[i], r)
	}
	if err != nil { // what could be read is there
		x.WriteString("# " + helpEscapes.Replace(err.Error()) + "\n")
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	plain := request.Clone(request.Context())
	plain.Header = http.Header{}
	h.process.ServeHTTP(&behind{header: http.Header{}, to: &x.Buffer}, plain)
	if !strings.Contains(request.Header.Get("Accept-Encoding"), "gzip") {
		_, _ = w.Write(x.Bytes())
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err == nil {
		_, _ = z.Write(x.Bytes())
		_ = z.Close()
	}
}

// behind takes a response's body only.
type behind struct {
	header http.Header
	to     io.Writer
}

func (b *behind) Header() http.Header         { return b.header }
func (b *behind) WriteHeader(int)             {}
func (b *behind) Write(p []byte) (int, error) { return b.to.Write(p) }
