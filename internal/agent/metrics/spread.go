package metrics

import (
	"slices"
	"strconv"

	"github.com/culvert-net/culvert/internal/agent"
)

// spreadFamilies are those of a node whose packets are spread over CPUs.
var spreadFamilies = slices.Concat(
	counter("spread_packets_total", "Packets that a CPU handled for others.",
		byCPU(func(c agent.CPUStatus) float64 { return float64(c.Packets) }), "cpu"),
	gauge("spread_load", "Busy part of a CPU's time, whoever used it, in the last second: 0 to 1.",
		byCPU(func(c agent.CPUStatus) float64 { return c.Load }), "cpu"),
	gauge("spread_queued", "Packets in the queue of a CPU.",
		byCPU(func(c agent.CPUStatus) float64 { return float64(c.Queued) }), "cpu"),
	counter("spread_full_total", "Packets dropped because the queue of their CPU was full.",
		byCPU(func(c agent.CPUStatus) float64 { return float64(c.Full) }), "cpu"),
	gauge("spread_buckets", "Buckets of UEs or flows that a CPU handles.",
		byCPU(func(c agent.CPUStatus) float64 { return float64(c.Buckets) }), "cpu"),
	counter("spread_cpu_moves_total", "Buckets that came to a CPU from another one.",
		byCPU(func(c agent.CPUStatus) float64 { return float64(c.Moves) }), "cpu"),
	counter("spread_bucket_packets_total", "Packets of a bucket: of the 16 that moved most often.",
		byBucket(func(b agent.BucketStatus) uint64 { return b.Packets }), "bucket"),
	counter("spread_bucket_moves_total", "Moves of a bucket to another CPU: of the 16 that moved most often.",
		byBucket(func(b agent.BucketStatus) uint64 { return b.Moves }), "bucket"),
	gauge("spread_split", "Buckets whose flows are spread, because one UE fills a CPU.",
		ofSpread(func(s *agent.SpreadStatus, emit emit) { emit(float64(s.Split)) })),
	counter("spread_moves_total", "Buckets that moved to another CPU.",
		ofSpread(func(s *agent.SpreadStatus, emit emit) { emit(float64(s.Moves)) })),
)

// ofSpread reads nothing where packets are not spread.
func ofSpread(read func(*agent.SpreadStatus, emit)) func(*reading, emit) {
	return func(r *reading, emit emit) {
		if r.Spread != nil {
			read(r.Spread, emit)
		}
	}
}

func byCPU(of func(agent.CPUStatus) float64) func(*reading, emit) {
	return ofSpread(func(s *agent.SpreadStatus, emit emit) {
		for _, c := range s.CPUs {
			emit(of(c), strconv.Itoa(c.CPU))
		}
	})
}

func byBucket(of func(agent.BucketStatus) uint64) func(*reading, emit) {
	return ofSpread(func(s *agent.SpreadStatus, emit emit) {
		for _, b := range s.Moved {
			emit(float64(of(b)), strconv.Itoa(b.Bucket))
		}
	})
}
