package culvert_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"log/slog"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"

	"github.com/culvert-net/culvert/internal/logevent"
)

const eventsPath = module + "internal/logevent"

// TestLogEvents looks at each log call of the programs that servers carry: a line at level info
// or above names its event, at the event's level, and each event is logged somewhere.
func TestLogEvents(t *testing.T) {
	imports := graph(t)
	products := map[string]bool{}
	for _, program := range []string{"cmd/culvert", "cmd/culvert-cni"} {
		for _, reached := range closure(imports, program) {
			products[module+reached] = true
		}
	}
	l := logCalls{levels: eventLevels(t), used: map[types.Object]bool{}}
	for _, pkg := range everyPackage(t) {
		if products[pkg.PkgPath] && pkg.PkgPath != eventsPath {
			l.look(pkg)
		}
	}
	for _, fault := range l.faults {
		t.Error(fault)
	}
	if l.calls < 130 {
		t.Errorf("looked at %d log calls: the programs have more", l.calls)
	}
	for _, pkg := range everyPackage(t) {
		if pkg.PkgPath != eventsPath {
			continue
		}
		for name := range l.levels {
			if !l.used[pkg.Types.Scope().Lookup(name)] {
				t.Errorf("nobody logs logevent.%s", name)
			}
		}
	}
}

// TestLogEventsFindsFaults has calls that break the rules.
func TestLogEventsFindsFaults(t *testing.T) {
	pkgs, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports,
	}, "./internal/logevent/testdata/bad")
	if err != nil || len(pkgs) != 1 || len(pkgs[0].Errors) > 0 {
		t.Fatalf("%v, %v", err, pkgs)
	}
	l := logCalls{levels: eventLevels(t), used: map[types.Object]bool{}}
	l.look(pkgs[0])
	var at []string
	for _, fault := range l.faults {
		_, where, _ := strings.Cut(fault, "bad.go:")
		at = append(at, where)
	}
	want := []string{
		"13:2: this line needs an event of internal/logevent right after its text",
		"14:2: this line needs an event of internal/logevent right after its text",
		"15:2: this line needs an event of internal/logevent right after its text",
		"16:2: this line needs an event of internal/logevent right after its text",
		"17:2: this line needs an event of internal/logevent right after its text",
		"18:2: bgp.session_down is an event of level WARN",
	}
	if got := strings.Join(at, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("found\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// logCalls are the log calls of some packages.
type logCalls struct {
	levels map[string]*logevent.Event // by the variable's name
	used   map[types.Object]bool
	calls  int
	faults []string
}

// eventLevels reads which variable defines which event.
func eventLevels(t *testing.T) map[string]*logevent.Event {
	t.Helper()
	byName := map[string]*logevent.Event{}
	for _, e := range logevent.All() {
		byName[e.Name()] = e
	}
	list := map[string]*logevent.Event{}
	for _, pkg := range everyPackage(t) {
		if pkg.PkgPath != eventsPath {
			continue
		}
		for _, init := range pkg.TypesInfo.InitOrder {
			call, ok := init.Rhs.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				continue
			}
			if name := pkg.TypesInfo.Types[call.Args[0]].Value; name != nil && name.Kind() == constant.String {
				list[init.Lhs[0].Name()] = byName[constant.StringVal(name)]
			}
		}
	}
	if len(list) != len(byName) {
		t.Fatalf("%d variables define %d events", len(list), len(byName))
	}
	return list
}

// eventAt says which argument of a slog function is the key event, and the level that the
// function logs at.
var eventAt = map[string]struct {
	argument int
	level    slog.Level
}{
	"Info": {1, slog.LevelInfo}, "Warn": {1, slog.LevelWarn}, "Error": {1, slog.LevelError},
	"InfoContext": {2, slog.LevelInfo}, "WarnContext": {2, slog.LevelWarn}, "ErrorContext": {2, slog.LevelError},
	"Log": {3, 0}, "LogAttrs": {3, 0}, // the event says at which
}

func (l *logCalls) look(pkg *packages.Package) {
	for _, file := range pkg.Syntax {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				l.used[pkg.TypesInfo.Uses[n.Sel]] = true
			case *ast.CallExpr:
				l.check(pkg, n)
			}
			return true
		})
	}
}

// check looks at one call. A variable in the place of an event is a parameter of its type: who
// passes it is looked at by the compiler.
func (l *logCalls) check(pkg *packages.Package, call *ast.CallExpr) {
	callee, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	f, ok := pkg.TypesInfo.Uses[callee.Sel].(*types.Func)
	if !ok || f.Pkg() == nil || f.Pkg().Path() != "log/slog" {
		return
	}
	at, ok := eventAt[f.Name()]
	if !ok || f.Signature().Recv() != nil && !strings.HasSuffix(f.Signature().Recv().Type().String(), "slog.Logger") {
		return
	}
	l.calls++
	report := func(text string, args ...any) {
		l.faults = append(l.faults, fmt.Sprintf("%s: ", pkg.Fset.Position(call.Pos()))+fmt.Sprintf(text, args...))
	}
	if len(call.Args) < at.argument+2 || !isEvent(pkg, call.Args[at.argument], call.Args[at.argument+1]) {
		report("this line needs an event of internal/logevent right after its text")
		return
	}
	if named, ok := call.Args[at.argument+1].(*ast.SelectorExpr); ok && at.argument < 3 {
		if e := l.levels[named.Sel.Name]; e.Level() != at.level {
			report("%s is an event of level %s", e.Name(), e.Level())
		}
	}
}

func isEvent(pkg *packages.Package, key, value ast.Expr) bool {
	name := pkg.TypesInfo.Types[key].Value
	is := pkg.TypesInfo.TypeOf(value)
	return name != nil && name.Kind() == constant.String && constant.StringVal(name) == "event" &&
		is.String() == "*"+eventsPath+".Event"
}
