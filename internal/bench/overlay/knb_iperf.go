package overlay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
)

// iperfReport is the part of iperf3's JSON that is read.
type iperfReport struct {
	End struct {
		Received iperfSum `json:"sum_received"` // of TCP
		Sum      iperfSum `json:"sum"`          // of UDP
	} `json:"end"`
	Error string `json:"error"`
}

type iperfSum struct {
	Bits float64 `json:"bits_per_second"`
	Lost float64 `json:"lost_percent"`
}

// How long iperf3 may take besides sending, how long its server may take to start, and how often
// the client asks.
const (
	iperfTime  = 30 * time.Second
	iperfStart = 10 * time.Second
	iperfAgain = 100 * time.Millisecond
)

// iperf has iperf3 send as knb does: TCP without its first second, UDP as fast as it goes. UDP's
// first second counts: where it is left out, iperf3 still counts what was lost in it.
func (r *knbRig) iperf(ctx context.Context, v variant, p knbPoint, h *hosts) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.knb.Time)+iperfTime)
	defer cancel()
	to, err := r.network.Address(v.pod("b"), p.family == ipv4)
	if err != nil {
		return err
	}
	server := exec.CommandContext(ctx, "iperf3", "-s", "-B", to.String())
	if err := r.network.Do(v.pod("b"), on1(r.cpus.Device, server.Start)); err != nil {
		return fmt.Errorf("iperf3: %w (fix: apt-get install iperf3)", err)
	}
	defer func() {
		err = errors.Join(err, server.Process.Kill())
		_ = server.Wait() // that it was ended is what it says
	}()
	target := to.String()
	if isService(p.of) {
		target = serviceAddress[p.family]
	}
	args := iperfArguments(target, p.of, time.Duration(r.knb.Time), r.knb.Datagram)
	for end := time.Now().Add(iperfStart); ; {
		report, err := r.client(ctx, v, args)
		if err == nil {
			h.bits, h.lost = report.End.Received.Bits, report.End.Sum.Lost/100
			if strings.HasSuffix(p.of, "udp") {
				h.bits = report.End.Sum.Bits * (1 - h.lost)
			}
			return nil
		}
		if !strings.Contains(err.Error(), "unable to connect") || time.Now().After(end) {
			return err
		}
		if err := node.Wait(ctx, iperfAgain); err != nil {
			return err
		}
	}
}

// iperfArguments are those of the client.
func iperfArguments(target, of string, lasts time.Duration, datagram int) []string {
	seconds := int(lasts.Seconds())
	if strings.HasSuffix(of, "udp") {
		return []string{"-J", "-c", target, "-t", strconv.Itoa(seconds), "-u", "-b", "0", "-l", strconv.Itoa(datagram)}
	}
	return []string{"-J", "-c", target, "-t", strconv.Itoa(seconds - 1), "-O", "1"}
}

// client runs iperf3 in the client's pod.
func (r *knbRig) client(ctx context.Context, v variant, args []string) (report iperfReport, err error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "iperf3", args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err = r.network.Do(v.pod("a"), on1(r.cpus.Generator, cmd.Run))
	text := out.Bytes()
	if bad := json.Unmarshal(text, &report); bad != nil || report.Error != "" || err != nil {
		return report, errors.Join(fmt.Errorf("iperf3: %s%.300s", report.Error, text), err, bad)
	}
	return report, nil
}

// on1 has what f starts run on a CPU: a program runs where the thread may that starts it, which
// ends here.
func on1(cpu int, f func() error) func() error {
	return func() error {
		if err := proc.Pin(cpu); err != nil {
			return err
		}
		return f()
	}
}
