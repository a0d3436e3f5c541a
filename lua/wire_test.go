package lua_test

import (
	"context"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/lua"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// wire maps the names of the numbers on which Go and the scripts must agree to the names of the same numbers in the
// scripts. It has "" for a number that has no name in the scripts.
var wire = map[string]string{
	"SlidingLog": "SLIDING_LOG", "SlidingCounter": "SLIDING_COUNTER", "GCRA": "GCRA",
	"FixedWindow": "FIXED_WINDOW", "SlidingLogZSet": "SLIDING_LOG_ZSET", "Concurrency": "CONCURRENCY",

	"Take": "TAKE", "TakeUpTo": "TAKE_UP_TO", "Peek": "PEEK", "Refund": "REFUND", "Forget": "FORGET",
	"Charge": "CHARGE", "Lease": "LEASE", "Slots": "SLOTS", "SlotsAsKnown": "AS_KNOWN", "Hold": "HOLD", "HoldUpTo": "HOLD_UP_TO", "Settle": "SETTLE", "Extend": "EXTEND", "Takes": "TAKES",

	"Expired": "EXPIRED", "Unreadable": "UNREADABLE", "HeldBack": "HELD_BACK", "OutcomeOffset": "OUTCOME_OFFSET",
	"AnswerNumbers": "ANSWER_NUMBERS", "AnswerAllowed": "ANSWER_ALLOWED", "AnswerWithParts": "ANSWER_WITH_PARTS", "AnswerChargedMore": "ANSWER_CHARGED_MORE",

	"TagLog": "TAG_LOG", "TagLongLog": "TAG_LONG_LOG", "TagCounter": "TAG_COUNTER", "TagGCRA": "TAG_GCRA",
	"TagFixedWindow": "TAG_FIXED_WINDOW", "TagLogZSet": "TAG_LOG_ZSET", "TagLeases": "TAG_LEASES", "TagHolds": "TAG_HOLDS", "TagSlots": "TAG_SLOTS",
	"HeaderBytes": "HEADER",
	"EndOfTime":   "LATEST", "LongestWindow": "LONGEST_WINDOW", "MaxKeyUnits": "MAX_UNITS", "MaxLeases": "MAX_LEASES", "MaxHolders": "MAX_HOLDERS",

	"RuleBytes": "RULE", "NotAfterStep": "NOT_AFTER_STEP", "NoNotAfter": "NO_NOT_AFTER",
	"MaxLogUnits": "MAX_LOG_UNITS", "MaxLogZSetUnits": "MAX_LOG_ZSET_UNITS", "LongestLease": "LONGEST_LEASE",
	"LongestHold": "LONGEST_HOLD", "LateHold": "LATE", "MaxHolds": "MAX_HOLDS",
	"LongestSlot": "LONGEST_SLOT",

	// Part of RULE.
	"ParameterBytes": "",
	// Written out in read_entry, which takes the form apart; every batch has forms.
	"SameKey": "", "HasGroup": "", "LongCost": "", "HasCount": "", "FurtherOperation": "",
	// Written out in read_rule.
	"GivesBack": "",
	// Follow from the number of bytes of a field.
	"MaxCount": "", "MaxUnits": "",
}

// The numbers on which Go and the scripts must agree are the same on both sides, and the list of them is complete.
// So neither side can be changed alone.
func TestGoAndTheScriptsAgreeOnTheWire(t *testing.T) {
	known := constants(t)
	var names []string
	for name := range known {
		if _, ok := wire[name]; !ok {
			t.Errorf("the constant %s is not listed: say what the scripts call it", name)
		}
	}
	for name, there := range wire {
		if _, ok := known[name]; !ok {
			t.Errorf("there is no constant %s", name)
		}
		if there != "" {
			names = append(names, there)
		}
	}
	values := inLua(t, names)
	for name, there := range wire {
		if got, ok := values[there]; there != "" && (!ok || got != known[name]) {
			t.Errorf("%s is %d, the scripts' %s is %d (known: %v)", name, known[name], there, got, ok)
		}
	}
	for _, there := range regexp.MustCompile(`\b(TAG|ANSWER)_[A-Z_]+\b`).FindAllString(lua.Decide(), -1) {
		if !slices.Contains(names, there) {
			t.Errorf("the scripts' %s is not listed: say what it is called in Go", there)
		}
	}
}

// constants returns the package's exported numbers.
func constants(t *testing.T) map[string]int64 {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	checked, err := (&types.Config{Importer: importer.ForCompiler(fset, "source", nil)}).Check("lua", fset, files, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]int64)
	for _, name := range checked.Scope().Names() {
		if c, ok := checked.Scope().Lookup(name).(*types.Const); ok && c.Exported() {
			if all[name], ok = constant.Int64Val(c.Val()); !ok {
				t.Errorf("%s is %v, must be a whole number", name, c.Val())
			}
		}
	}
	return all
}

// inLua returns the values that the given names have at the end of the decision script, without those that it does
// not know. The value of a string is its first byte.
func inLua(t *testing.T, names []string) map[string]int64 {
	t.Helper()
	script := lua.Decide() + "\nlocal all = {}\n"
	for _, name := range names {
		// An unknown name is an error; the script's own pcall is another function.
		script += "do local ok, x = _G.pcall(function() return " + name + " end)\n" +
			"all[#all + 1] = not ok and 'none' or type(x) == 'string' and string.byte(x) or x end\n"
	}
	got, err := redistest.Shared(t).Client(t).Eval(context.Background(), script+"return all", nil).Slice()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]int64)
	for i, name := range names {
		if n, ok := got[i].(int64); ok {
			values[name] = n
		}
	}
	return values
}

// The order of the script's parts is the one that numbers.lua lists, and the list is complete.
func TestThePartsAreInTheStatedOrder(t *testing.T) {
	_, said, _ := strings.Cut(lua.Source("numbers"), "They stand in this order:\n--\n--   ")
	said, _, _ = strings.Cut(said, "\n--\n")
	script := lua.Decide()
	for name := range strings.SplitSeq(strings.ReplaceAll(said, "\n--  ", ""), ", ") {
		part, err := os.ReadFile(name + ".lua")
		if err != nil {
			t.Fatal(err)
		}
		rest, ok := strings.CutPrefix(script, string(part))
		if !ok {
			t.Fatalf("%s.lua is said to stand where this is: %.60q", name, script)
		}
		script = rest
	}
	if script != "" {
		t.Errorf("a part is not in the list: %.60q", script)
	}
}
