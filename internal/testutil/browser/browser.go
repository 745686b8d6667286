// Package browser lets tests look at pages with a headless Chromium: what they show, what they do,
// and whether they fetch anything or fail.
package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Browser is a Chromium that remembers what a page did that it should not.
type Browser struct {
	Ctx context.Context
	// Own begins the addresses that pages may fetch from; empty: they fetch nothing.
	Own  string
	mu   sync.Mutex
	done []string
}

// patience is for a browser that begins on a busy machine.
const patience = time.Minute

// New opens a browser, which is closed after the test.
func New(t *testing.T) *Browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.WSURLReadTimeout(patience))
	// Not the test's context, which ends before the browser has been closed.
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithBrowserOption(chromedp.WithDialTimeout(patience)))
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // waits for its end
			t.Error(err)
		}
		cancel()
	})
	b := &Browser{Ctx: ctx}
	chromedp.ListenTarget(ctx, b.listen)
	if err := chromedp.Run(ctx, network.Enable(), log.Enable(), runtime.Enable()); err != nil {
		t.Fatalf("chromium (tools/need.sh test installs it): %v", err)
	}
	return b
}

func (b *Browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.done = append(b.done, "exception: "+e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		b.done = append(b.done, fmt.Sprintf("console.%s of %d values", e.Type, len(e.Args)))
	case *log.EventEntryAdded:
		b.done = append(b.done, "log: "+e.Entry.Text)
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, "file://") && !strings.HasPrefix(e.Request.URL, "data:") && (b.Own == "" || !strings.HasPrefix(e.Request.URL, b.Own)) {
			b.done = append(b.done, "request: "+e.Request.URL)
		}
	}
}

// Deeds are what the page did since they were asked for last.
func (b *Browser) Deeds() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	done := b.done
	b.done = nil
	return done
}

// Open shows a page in a window of some size.
func (b *Browser) Open(t *testing.T, path string, width, height int64, dark bool) {
	t.Helper()
	b.Visit(t, "file://"+path, width, height, dark)
}

// Visit shows what is at an address in a window of some size.
func (b *Browser) Visit(t *testing.T, address string, width, height int64, dark bool) {
	t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	err := chromedp.Run(b.Ctx,
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		chromedp.EmulateViewport(width, height),
		chromedp.Navigate(address),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// Ask evaluates an expression.
func (b *Browser) Ask(t *testing.T, expression string, answer any) {
	t.Helper()
	if err := b.Try(expression, answer); err != nil {
		t.Fatal(err)
	}
}

// Try evaluates an expression, which fails while the page goes to another address.
func (b *Browser) Try(expression string, answer any) error {
	return chromedp.Run(b.Ctx, chromedp.Evaluate(expression, answer))
}

// Wait waits until an expression is true.
func (b *Browser) Wait(t *testing.T, expression string) {
	t.Helper()
	if err := chromedp.Run(b.Ctx, chromedp.Poll(expression, nil, chromedp.WithPollingTimeout(time.Minute))); err != nil {
		var text string
		_ = chromedp.Run(b.Ctx, chromedp.Evaluate("document.body.innerText", &text)) // the first error is told
		t.Fatalf("%s: %v; the page says:\n%s\n%v", expression, err, text, b.Deeds())
	}
}

// Picture keeps what the page looks like: go test -artifacts -outputdir .
func (b *Browser) Picture(t *testing.T, name string) {
	t.Helper()
	var png []byte
	if err := chromedp.Run(b.Ctx, chromedp.FullScreenshot(&png, 100)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(t.ArtifactDir(), name+".png"), png, 0o644); err != nil {
		t.Fatal(err)
	}
}
