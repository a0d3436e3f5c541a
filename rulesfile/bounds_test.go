package rulesfile

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unicode/utf16"
)

// Reading a file of the largest size takes a bounded time and bounded memory, whatever the file
// contains. The test checks the allocated bytes, which are the same on any machine.
func TestReadingIsBounded(t *testing.T) {
	const most = 128 << 20
	fill := func(line string) string { return strings.Repeat(line, (maxBytes-100)/len(line)) }
	distinct := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < maxBytes-100; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"keys, all the same, in one line":   good + "keys: {" + fill("abcdefgh: a, ") + "}",
		"keys in one line":                  good + "keys: {" + distinct("%x: a, ") + "}",
		"keys, one a line":                  good + "keys:\n" + distinct("  %x: a\n"),
		"a list in one line":                "rules: [" + fill("a,") + "]",
		"a list":                            "rules:\n" + fill("- a\n"),
		"text that does not end":            `rules: "` + fill("x"),
		"a mistake behind a long line":      "rules: {a: {limit: 1/s}} #" + fill("x") + "\n\t}",
		"a mistake in front of a long line": "rules: }\n#" + fill("x"),
		"a mistake in a long line":          "rules: {" + fill("x, ") + "]",
		"colons":                            "rules: " + fill(":"),
		"documents":                         fill("---\na\n"),
		"a long name":                       "rules: {" + fill("x") + ": {limit: 1/s}}",
		"blank lines in a block of text":    "rules: |\n" + fill("\n"),
		"blank lines of old Macs":           "rules: |\r" + fill(" \r"),
		"a block of text, some lines blank": "rules: |\n" + fill(" a\n"+strings.Repeat("\n", maxBlank)),
		"a long block, blank at its end":    "rules: |\n" + strings.TrimSuffix(fill(" a\n"), strings.Repeat(" a\n", maxBlank)) + strings.Repeat("\n", maxBlank),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := read("f", []byte(text))
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > most {
			t.Errorf("%s: reading %d bytes allocates %d MB in all (%.80v)", name, len(text), took>>20, err)
		}
	}
}

// The library's time for a tab in quotes grows with the rest of its line, and its time for each blank line at the
// end of a block of text grows with the block.
func TestTabsAndBlankLinesAreBounded(t *testing.T) {
	for name, test := range map[string]struct{ text, says string }{
		"as many tabs":        {good + "# " + strings.Repeat("\t", maxTabs) + "\n#\t\n", ""},
		"too many tabs":       {good + "# " + strings.Repeat("\t", maxTabs+1), "f:%d:1: the line has more than 1000 tabs"},
		"in quotes":           {good + "\"" + strings.Repeat("a\t", maxTabs+1), "f:%d:1: the line has more than 1000 tabs"},
		"as many blank lines": {good + strings.Repeat("\n", maxBlank) + "#\n" + strings.Repeat(" \r\n", maxBlank) + "#", ""},
		"too many":            {good + strings.Repeat("\n", maxBlank+1), "f:%d:1: more than 50 blank lines follow one another"},
		"of Windows":          {good + strings.Repeat(" \t\r\n", maxBlank+1), "f:%d:1: more than 50 blank lines follow one another"},
	} {
		_, err := read("f", []byte(test.text))
		if test.says == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		at := strings.Count(good, "\n") + 1
		if strings.Contains(test.says, "blank") {
			at += maxBlank
		}
		if says := fmt.Sprintf(test.says, at); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %.200v; want %s", name, err, says)
		}
	}
}

func TestFieldsAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("rules: {search: {limit: 60/1m, plans: {a: 1/s}}}\nkeys:\n")
	for i := range maxFields - 6 { // the other fields: rules, search, limit, plans, a, keys
		fmt.Fprintf(&b, "  %d: a\n", i)
	}
	if _, err := read("f", []byte(b.String())); err != nil {
		t.Error(err)
	}
	b.WriteString("  more: a\n")
	if _, err := read("f", []byte(b.String())); err == nil || !strings.Contains(err.Error(), "f:9997:7: the file has more than 10000 fields or entries") {
		t.Error(err)
	}
}

// However it is written, a file cannot be nested deeper than maxDepth. Comments do not nest.
func TestDepthIsBounded(t *testing.T) {
	nested := func(depth int, line string) string {
		var b strings.Builder
		for i := range depth {
			fmt.Fprintf(&b, "%*s%s\n", i, "", line)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"fields":           nested(maxDepth+1, "a:"),
		"the most fields":  nested(700, "a:"),
		"lists":            nested(maxDepth+1, "-"),
		"lists in fields":  nested(maxDepth+1, "- a:"),
		"fields of dashes": nested(maxDepth/2+1, "-\n") + nested(maxDepth+1, "a:"),
		"dashes":           strings.Repeat("- ", maxDepth+1),
		"question marks":   strings.Repeat("? ", maxDepth+1),
		"brackets":         strings.Repeat("[", maxDepth+1),
	} {
		if _, err := read("f", []byte(text)); err == nil || !strings.Contains(err.Error(), "nested more than 16 deep") {
			t.Errorf("%s: %.200v", name, err)
		}
	}
	comments := "rules: {search: {limit: 60/1m, plans: {a: 1/s}}}\n" + nested(30, "# a comment") + "keys:\n" + nested(30, "# a comment") + "  user: a # a comment\n"
	if _, err := read("f", []byte(comments)); err != nil {
		t.Error(err)
	}
}

// A byte order mark, which some editors write invisibly, changes nothing. UTF-16, which some editors
// write instead of UTF-8, is reported in plain words.
func TestByteOrderMarks(t *testing.T) {
	for _, text := range []string{good, "# comment\n" + good, "\n" + good, "{rules: {search: {limit: 60/1m}}}", "---\n" + good} {
		file, err := read("f", []byte("\uFEFF"+text))
		if err != nil || len(file.rules) != 1 || file.rules[0].name != "search" || file.at.column < 1 {
			t.Errorf("%q: %+v, %v", text, file, err)
		}
	}
	if _, err := read("f", []byte("\uFEFF"+"rule: 1")); err == nil || !strings.Contains(err.Error(), `f:1:1: unknown field "rule"`) {
		t.Error(err)
	}
	var little, big []byte
	for _, u := range utf16.Encode([]rune(good)) {
		little, big = append(little, byte(u), byte(u>>8)), append(big, byte(u>>8), byte(u))
	}
	for _, text := range []string{"\xff\xfe" + string(little), "\xfe\xff" + string(big), string(little), string(big), "\xff\xfe\x00\x00", "\x00\x00\xfe\xff"} {
		if _, err := read("f", []byte(text)); err == nil || !strings.Contains(err.Error(), "f:1:1: the file is in UTF-16 or UTF-32, must be text in UTF-8") {
			t.Errorf("%.10q: %v", text, err)
		}
	}
}
