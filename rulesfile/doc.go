// Package rulesfile loads a limiter's rules from a YAML file: limits, which may differ by plan and by
// key, and all other settings of rules.
//
//	rules:
//	  search:
//	    limit: 60/1m
//	    plans: {gold: 1000/1m}
//	    keys: {tenant-7: gold}
//
// A program loads the file, gets the rules that it uses, and watches the file:
//
//	rules, err := rulesfile.Load(limiter, "rules.yaml")
//	search, err := rules.Rule("search")
//	go rules.Watch(ctx)
//	d, err := search.Allow(ctx, tenant)
//
// A file is put in force as a whole or not at all. If anything in it is wrong, the rules stay as they
// were, and the error has the line and column of each mistake. Units that were already charged also
// count under the new rules: see tiered.Limiter.ChangeRule.
//
// docs/rules.md describes all fields, in an example with comments.
package rulesfile
