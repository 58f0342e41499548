// Package fromdebezium translates the configuration of a Debezium MySQL connector with the Outbox Event Router into one of this relay, and
// its stored offset into the place to start.
//
// Every setting is accounted for: translated, needless here with the reason in a comment, or a [Loss], because records would come out
// otherwise. Secrets are not copied. The package reads what it is given and connects nowhere.
package fromdebezium
