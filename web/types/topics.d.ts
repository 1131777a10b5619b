/**
 * Topics and patterns at the level of types: which payloads a name can bring.
 *
 * `*` is one word and `#` zero or more, as everywhere. A word that is only known as `string` counts as one word, so that
 * `orders.${id}.shipped` finds its payload.
 */

/** Topics that are not described: every payload is `unknown`. */
export interface AnyTopics {
  "#": unknown;
}

/** The words of a name. */
type Words<Name extends string> = Name extends `${infer Head}.${infer Rest}` ? [Head, ...Words<Rest>] : [Name];

/** Whether two words, wildcards included, can be the same word. */
type WordsMeet<A extends string, B extends string> = A extends "*" ? true : B extends "*" ? true : A extends B ? true : B extends A ? true : false;

/** Whether there is a topic that matches both patterns. */
type Meet<A extends string[], B extends string[]> = A extends ["#", ...infer A1 extends string[]]
  ? Meet<A1, B> extends true
    ? true
    : B extends [string, ...infer B1 extends string[]]
      ? Meet<A, B1>
      : false
  : B extends ["#", ...infer B1 extends string[]]
    ? Meet<A, B1> extends true
      ? true
      : A extends [string, ...infer A1 extends string[]]
        ? Meet<A1, B>
        : false
    : A extends [infer WordA extends string, ...infer A1 extends string[]]
      ? B extends [infer WordB extends string, ...infer B1 extends string[]]
        ? WordsMeet<WordA, WordB> extends true
          ? Meet<A1, B1>
          : false
        : false
      : B extends []
        ? true
        : false;

/** The patterns of the map that have a topic in common with a name. */
export type Meeting<Topics, Name extends string> = Name extends unknown
  ? { [Pattern in keyof Topics & string]: Meet<Words<Name>, Words<Pattern>> extends true ? Pattern : never }[keyof Topics & string]
  : never;

/** The names in a list with spaces. */
export type Names<Name extends string> = Name extends `${infer First} ${infer Rest}` ? First | Names<Rest> : Name;

/** The payload of one name. `unknown` for a name that is only known as `string`. */
type PayloadOfOne<Topics, Name extends string> = string extends Name
  ? unknown
  : Name extends keyof Topics
    ? Topics[Name]
    : [Meeting<Topics, Name>] extends [never]
      ? unknown
      : Topics[Meeting<Topics, Name> & keyof Topics];

/**
 * The payload of a topic or pattern.
 *
 * A pattern of the map has its own payload. Any other name has the union of the payloads of the patterns that it has a topic in common with, or `unknown` if there are none.
 */
export type PayloadOf<Topics, Name extends string> = Names<Name> extends infer Each extends string ? (Each extends unknown ? PayloadOfOne<Topics, Each> : never) : never;

/** The words of a topic for one word of a pattern. */
type TopicWord<Word extends string> = Word extends "*" ? string : Word;

/** The topics that match a pattern, as far as a type can express that. A wildcard is any text. */
export type TopicOf<Pattern extends string> = Pattern extends `#.${infer Rest}`
  ? TopicOf<Rest> | `${string}.${TopicOf<Rest>}`
  : Pattern extends `${infer Word}.#`
    ? TopicOf<Word> | `${TopicOf<Word>}.${string}`
    : Pattern extends `${infer Word}.#.${infer Rest}`
      ? `${TopicOf<Word>}.${TopicOf<Rest>}` | `${TopicOf<Word>}.${string}.${TopicOf<Rest>}`
      : Pattern extends `${infer Word}.${infer Rest}`
        ? `${TopicWord<Word>}.${TopicOf<Rest>}`
        : Pattern extends "*" | "#"
          ? string
          : Pattern;

/** A topic that may be published: it matches a pattern of the map, or is only known as `string`. */
export type Publishable<Topics, Topic extends string> = string extends Topic ? Topic : [Meeting<Topics, Topic>] extends [never] ? never : Topic;

/** The names that have no topic in common with the map, without names with a colon. */
type Unmet<Topics, Each> = Each extends string
  ? string extends Each
    ? never
    : Each extends "all" | `${string}:${string}`
      ? never
      : [Meeting<Topics, Each>] extends [never]
        ? Each
        : never
  : never;

/** One name, or several separated by spaces, if each can have an event. Otherwise the names of the map. */
export type Subscribable<Topics, Name extends string> = [Unmet<Topics, Names<Name>>] extends [never] ? Name : keyof Topics & string;
