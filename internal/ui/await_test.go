package ui_test

import "github.com/chromedp/cdproto/runtime"

// awaited waits for a promise.
func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
