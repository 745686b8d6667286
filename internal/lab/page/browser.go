package page

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// size is one of a window.
type size struct{ width, height int64 }

var (
	desktop = size{1100, 760}
	phone   = size{360, 740}
)

// leaving is how long after it left a view a browser may log the end of the view's stream.
const leaving = 5 * time.Second

// browser is a chromium that remembers what a page did that it should not.
type browser struct {
	ctx   context.Context
	at    string // where it was sent last, and when
	since time.Time
	own   string // address of the page, without the secret
	mu    sync.Mutex
	deeds []string
}

// open opens a browser, and shows the page by its address with the secret.
func open(ctx context.Context, address string) (b *browser, closed func() error, err error) {
	own, _, _ := strings.Cut(address, "/#")
	allocator, end := chromedp.NewExecAllocator(ctx, chromedp.DefaultExecAllocatorOptions[:]...)
	tab, _ := chromedp.NewContext(allocator)
	b = &browser{ctx: tab, own: own}
	chromedp.ListenTarget(tab, b.listen)
	closed = func() error {
		defer end()
		return chromedp.Cancel(tab)
	}
	if err := chromedp.Run(tab, network.Enable(), log.Enable(), runtime.Enable()); err != nil {
		return nil, nil, err
	}
	if err := b.visit(address, desktop, false); err != nil {
		return nil, nil, err
	}
	return b, closed, b.wait(`document.querySelector("nav")`)
}

func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	note := func(format string, args ...any) {
		b.deeds = append(b.deeds, fmt.Sprintf(format, args...))
	}
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		note("exception: %s", e.ExceptionDetails.Error())
	case *log.EventEntryAdded:
		// A view that is left ends its stream, which the browser may log.
		if strings.HasSuffix(e.Entry.URL, "/Watch") && time.Since(b.since) < leaving {
			return
		}
		note("log: %s %s, %v after it was sent to %s", e.Entry.Text, e.Entry.URL, time.Since(b.since).Round(time.Millisecond), b.at)
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, b.own) {
			note("request: %s", e.Request.URL)
		}
	}
}

// done is what the page did that it should not.
func (b *browser) done() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.deeds
}

// visit shows an address in a window of a size.
func (b *browser) visit(address string, s size, dark bool) error {
	b.mu.Lock()
	b.at, b.since = address, time.Now()
	b.mu.Unlock()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	return chromedp.Run(b.ctx, emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		chromedp.EmulateViewport(s.width, s.height), chromedp.Navigate(address))
}

// wait waits until an expression is true.
func (b *browser) wait(expression string) error {
	err := chromedp.Run(b.ctx, chromedp.Poll(expression, nil, chromedp.WithPollingTimeout(patience)))
	if err != nil {
		var text string
		_ = chromedp.Run(b.ctx, chromedp.Evaluate("document.body.innerText", &text)) // err says more
		return fmt.Errorf("%w; the page says: %s", err, text)
	}
	return nil
}

func (b *browser) ask(expression string, answer any) error {
	return chromedp.Run(b.ctx, chromedp.Evaluate(expression, answer))
}

// picture is what the window shows, as PNG.
func (b *browser) picture() (png []byte, err error) {
	err = chromedp.Run(b.ctx, chromedp.ActionFunc(func(ctx context.Context) (err error) {
		png, err = page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatPng).WithOptimizeForSpeed(false).Do(ctx)
		return err
	}))
	return png, err
}
