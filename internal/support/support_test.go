package support

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/engine/netfile"
)

// A new field that sounds like a secret must say whether it is one.
func TestConfigurationMarksSecrets(t *testing.T) {
	for _, v := range []any{config.Config{}, netfile.Network{}} {
		for _, field := range Unmarked(reflect.TypeOf(v)) {
			t.Errorf(`%s sounds like a secret: give it the tag secret:"value", or secret:"path" or secret:"no"`, field)
		}
	}
	type peer struct {
		Password  string
		TokenFile string            `secret:"path"`
		MD5       []byte            `secret:"wrong"`
		Keys      map[string]string `secret:"value"`
		Hops      int
	}
	got := Unmarked(reflect.TypeOf(struct{ Peers []*peer }{}))
	if want := []string{".Peers.Password", ".Peers.MD5"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRedact(t *testing.T) {
	type inner struct {
		Value  string `secret:"value"`
		Token  string // not marked
		File   string `secret:"path"`
		MD5    []byte
		Name   string
		Addr   netip.Addr
		Nested struct{ Any any } `secret:"value"`
	}
	type outer struct {
		List []inner
		Map  map[string]*inner
	}
	one := inner{Value: "hunter2", Token: "hunter2", File: "/etc/t", MD5: []byte("hunter2"), Name: "n", Addr: netip.MustParseAddr("192.0.2.1")}
	one.Nested.Any = "hunter2"
	v := outer{List: []inner{one}, Map: map[string]*inner{"a": &one}}
	got := Redact(v)
	for _, i := range []inner{got.List[0], *got.Map["a"]} {
		if s := fmt.Sprintf("%+v", i); strings.Contains(s, "hunter2") || i.MD5 != nil || i.File != "/etc/t" || i.Name != "n" || i.Addr != one.Addr || i.Value != Redacted {
			t.Errorf("redacted: %s", s)
		}
	}
	if v.List[0].Value != "hunter2" || one.Token != "hunter2" || string(one.MD5) != "hunter2" {
		t.Errorf("the original changed: %+v", v)
	}
}

func TestMask(t *testing.T) {
	m := &Mask{}
	m.Know(netip.MustParsePrefix("10.45.0.0/16"), netip.MustParsePrefix("2001:db8:45::/48"))
	m.KnowUE(netip.MustParsePrefix("198.51.100.0/28"))
	for _, c := range [][2]string{
		{"ue=10.45.0.7 to 192.0.2.1", "ue=ue-1 to 192.0.2.1"},
		{"10.45.0.7/32, 10.45.0.7:2152, ::ffff:10.45.0.7", "ue-1, ue-1:2152, ::ffff:ue-1"},
		{"10.45.0.0/16 10.45.1.0/24", "10.45.0.0/16 10.45.1.0/24"},
		{"10.45.0.9/16", "ue-2"},
		{"ue:2001:db8:45:1::5: lost", "ue:ue-3: lost"},
		{"[2001:DB8:45:1::6]:80 2001:db8:45:1::/64", "[ue-3]:80 ue-3"},
		{"2001:db8:45::/48 2001:db8:1::1 aa:bb:cc:dd:ee:ff 12:30:59", "2001:db8:45::/48 2001:db8:1::1 aa:bb:cc:dd:ee:ff 12:30:59"},
		{"198.51.100.3 198.51.100.0/28", "ue-4 ue-4"},
		{"imsi-001010123456789 of 001010123456789", "imsi-id-1 of id-1"},
		{`{\"msisdn\":\"+491701234567\"} user_id=alice@example.org`, `{\"msisdn\":\"id-2\"} user_id=id-3`},
		{"12345678901234567890 1234567", "12345678901234567890 1234567"},
	} {
		if got := m.Text(c[0]); got != c[1] {
			t.Errorf("%s: got %s, want %s", c[0], got, c[1])
		}
	}
	in := `{"seid": "123456789012345", "bytes": 123456789012345, "ue": "10.45.0.7/32", "user_id": "imsi-001010123456789"}`
	if got, want := m.JSON(in), `{"seid": "123456789012345", "bytes": 123456789012345, "ue": "ue-1", "user_id": "id-1"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	m = &Mask{}
	m.HideAll("address: 192.0.2.1\npeer: 2001:db8::9")
	if got, want := m.Text("192.0.2.1 2001:db8::9 127.0.0.1 10.1.1.1 2001:db8:7::1"), "192.0.2.1 2001:db8::9 127.0.0.1 ue-1 ue-2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := (*Mask)(nil).Text("imsi-001010123456789"); got != "imsi-001010123456789" {
		t.Errorf("without a mask: %s", got)
	}
}

func text(name, s string) Item {
	return Item{name, func(context.Context) (any, error) { return s, nil }}
}

func left(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.tar.gz")
	release := make(chan struct{})
	defer close(release)
	items := []Item{
		text("a.txt", "imsi-001010123456789"),
		text("long.txt", strings.Repeat("x", 100)),
		{"stuck.txt", func(context.Context) (any, error) { <-release; return nil, nil }},
		{"bad.txt", func(context.Context) (any, error) { return nil, errors.New("of imsi-001010123456789") }},
		{"part.txt", func(context.Context) (any, error) { return "part", errors.New("half") }},
		text("last.txt", strings.Repeat("y", 100)),
	}
	m, err := Write(t.Context(), path, items, Options{Mask: &Mask{}, ItemTime: time.Second, ItemBytes: 50, Bytes: 80})
	if err != nil {
		t.Fatal(err)
	}
	want := []Result{
		{"a.txt", 9, false, ""}, {"long.txt", 50, true, ""}, {"stuck.txt", 0, false, "no answer within 1s"},
		{"bad.txt", 0, false, "of imsi-id-1"}, {"part.txt", 4, false, "half"}, {"last.txt", 17, true, ""},
	}
	if !slices.Equal(m.Items, want) || m.Failed() != 3 {
		t.Errorf("got %+v, want %+v", m.Items, want)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	zipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for archive := tar.NewReader(zipped); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		names = append(names, strings.TrimPrefix(h.Name, "culvert-support/"))
	}
	if want := []string{"a.txt", "long.txt", "part.txt", "last.txt", "manifest.json"}; !slices.Equal(names, want) {
		t.Errorf("files %v, want %v", names, want)
	}
	if _, err := Write(t.Context(), path, items[:1], Options{}); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("over another file: %v", err)
	}
}

// full is a file on a full disk.
type full struct{ *os.File }

func (full) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "t", Err: syscall.ENOSPC}
}

func TestNoHalfFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.tar.gz")
	onFull := func(dir string) (file, error) {
		f, err := os.CreateTemp(dir, "t")
		return full{f}, err
	}
	_, err := write(t.Context(), path, []Item{text("a", "a")}, Options{}, onFull)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "another disk") || len(left(t, dir)) > 0 {
		t.Errorf("full disk: %v, left: %v", err, left(t, dir))
	}
	if _, err := Write(t.Context(), filepath.Join(dir, "none", "a"), nil, Options{}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "--output") {
		t.Errorf("no directory: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupt := errors.New("interrupt")
	_, err = Write(ctx, path, []Item{text("a", "a"), {"b", func(ctx context.Context) (any, error) {
		cancel(interrupt)
		<-ctx.Done()
		return "late", nil
	}}}, Options{})
	if !errors.Is(err, interrupt) || len(left(t, dir)) > 0 {
		t.Errorf("interrupted: %v, left: %v", err, left(t, dir))
	}
}
