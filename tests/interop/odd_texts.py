"""Short texts that tokenizers treat differently: spaces, marks, scripts, signs."""

ODD = (
    "|a  b|a\r\nb|\r\n| \n\t x|a\x85|\x00a\x7f|\ufeffbom|a\u00a0b|\u200bz\u200c|\u3000x|a ▁b|"
    "e\u0301|\u0301|👩‍👩‍👧|❤️|\U0001d518\U0001d52b\U0001d526|½|…|™|ﬁ|\uff21\uff11|İstanbul ΣΑΣ|"
    "한국어|हिन्दी|ไทย กำ|日本語テキスト|"
    "Größe, Žižek: naïve!|don't I'll  we've|x_y-z 12345|``quoted''"
).split("|")
