package support

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Log is the last lines of the unit's log.
func Log(unit string, lines int) Item {
	return Item{"log.txt", func(ctx context.Context) (any, error) {
		return run(ctx, "journalctl", "--unit="+unit, "--lines="+strconv.Itoa(lines), "--no-pager", "--output=short-iso", "--quiet")
	}}
}

// Machine is what is collected of this machine, with the named interfaces.
func Machine(interfaces []string) []Item {
	items := []Item{
		{"machine/kernel.txt", files("/proc/version", "/proc/cmdline")},
		{"machine/os-release.txt", files("/etc/os-release")},
		{"machine/cpu.txt", files("/proc/cpuinfo", "/proc/loadavg")},
		{"machine/memory.txt", files("/proc/meminfo")},
		{"machine/links.txt", func(ctx context.Context) (any, error) { return run(ctx, "ip", "-s", "-d", "link", "show") }},
		{"machine/conntrack.txt", files("/proc/sys/net/netfilter/nf_conntrack_count", "/proc/sys/net/netfilter/nf_conntrack_max")},
		{"machine/routes.json", routes},
	}
	for _, name := range interfaces {
		if name == "" || strings.HasPrefix(name, "-") || strings.ContainsAny(name, "/ ") {
			continue
		}
		items = append(items, Item{"machine/ethtool-" + name + ".txt", func(ctx context.Context) (any, error) { return ethtool(ctx, name) }})
	}
	return items
}

// HTTP is the body that a server of this machine answers with, whatever the status.
func HTTP(file, url string) Item {
	return Item{file, func(ctx context.Context) (any, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, mostItemBytes))
		if response.StatusCode != http.StatusOK {
			body = append([]byte(response.Status+"\n"), body...)
		}
		return body, err
	}}
}

// files returns the contents of files below their names.
func files(paths ...string) func(context.Context) (any, error) {
	return func(context.Context) (any, error) {
		var out bytes.Buffer
		var failed error
		for _, path := range paths {
			data, err := os.ReadFile(path)
			failed = errors.Join(failed, err)
			fmt.Fprintf(&out, "# %s\n%s\n", path, data)
		}
		return out.Bytes(), failed
	}
}

func ethtool(ctx context.Context, name string) (any, error) {
	var out bytes.Buffer
	var failed error
	for _, flag := range []string{"-i", "-k", "-l"} {
		text, err := run(ctx, "ethtool", flag, name)
		if errors.Is(err, exec.ErrNotFound) {
			return nil, err
		}
		fmt.Fprintf(&out, "# ethtool %s %s\n%s", flag, name, text)
		if err != nil { // many drivers have no channels
			fmt.Fprintln(&out, err)
			failed = err
		}
	}
	if !bytes.Contains(out.Bytes(), []byte("driver:")) {
		return nil, failed
	}
	return out.Bytes(), nil
}

// routes counts the routes by family and table; a full table has a million.
func routes(ctx context.Context) (any, error) {
	counts := map[string]map[string]int{}
	for _, family := range []string{"-4", "-6"} {
		c := exec.CommandContext(ctx, "ip", family, "-oneline", "route", "show", "table", "all")
		c.WaitDelay = time.Second
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			return nil, err
		}
		counts[family] = map[string]int{}
		for lines := bufio.NewScanner(out); lines.Scan(); {
			table := "main"
			if _, after, ok := strings.Cut(lines.Text(), " table "); ok {
				table, _, _ = strings.Cut(after, " ")
			}
			counts[family][table]++
		}
		if err := c.Wait(); err != nil {
			return nil, fmt.Errorf("ip %s route: %w", family, err)
		}
	}
	return map[string]any{"ipv4": counts["-4"], "ipv6": counts["-6"]}, nil
}

// run returns what a program prints, and with an error what it says on stderr.
func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.WaitDelay = time.Second
	stdout, stderr := limited{room: mostItemBytes}, limited{room: 4096}
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	if err != nil {
		err = fmt.Errorf("%s: %w %s", name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), err
}

// limited keeps the first octets that are written.
type limited struct {
	bytes.Buffer
	room int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.room-l.Len())
	l.Buffer.Write(p[:n])
	return len(p), nil
}
